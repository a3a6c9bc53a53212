// A file, or a block device, that Terrace keeps rows in: of a fixed size, this process's alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "terrace/core/clock.hpp"
#include "terrace/core/result.hpp"

namespace terrace::offload {

/// Whether the system's page cache is passed by.
enum class DirectIo : std::uint8_t {
  where_possible,  ///< buffered on file systems that refuse O_DIRECT
  never,
};

struct StorageFileOptions {
  std::string path;
  /// Size of a file that is made, or is empty; its blocks are taken at once. Others keep theirs.
  std::uint64_t bytes = 0;
  DirectIo direct = DirectIo::where_possible;
  /// How long open() waits for others to close the file: of a process that was ended, and of a
  /// ring, the system closes files a moment later.
  Duration patience = std::chrono::seconds(2);
};

/// Threads  safe from any thread; the file is open until this object goes
class StorageFile {
 public:
  /// Transfers begin and end at multiples of so many bytes, in the file and in memory.
  static constexpr std::size_t alignment = 4096;

  /// Opens a file, and makes it where there is none. Its bytes are left as they are.
  ///
  /// Errors   invalid_argument: a size of 0, or no multiple of `alignment`, where there is no file;
  ///          io_error naming the file: it cannot be opened, is no regular file and no block
  ///          device, is a device that is mounted, another process has it open, or the disk has no
  ///          room for it (a file that was made for it is removed)
  [[nodiscard]] static Result<StorageFile> open(const StorageFileOptions& options);

  StorageFile(StorageFile&& other) noexcept
      : path_(std::move(other.path_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        bytes_(other.bytes_),
        direct_(other.direct_),
        created_(other.created_) {}
  StorageFile& operator=(StorageFile&&) = delete;
  ~StorageFile();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Whether transfers pass the page cache by.
  [[nodiscard]] bool direct() const noexcept { return direct_; }
  /// Whether open() gave the file its size: it then reads as zeros.
  [[nodiscard]] bool created() const noexcept { return created_; }

 private:
  StorageFile(std::string path, int descriptor, bool direct) noexcept
      : path_(std::move(path)), descriptor_(descriptor), direct_(direct) {}
  Status lock(Duration patience) const;
  [[nodiscard]] tl::unexpected<Error> in_use() const;
  Status allocate(std::uint64_t bytes);
  Status measure();

  std::string path_;
  int descriptor_;
  std::uint64_t bytes_ = 0;
  bool direct_;
  bool created_ = false;
};

}  // namespace terrace::offload
