// A file, or a block device, that Terrace keeps rows in: of a fixed size, this process's alone.
//
// A lock (flock) keeps other processes from it. The lock is advisory: each StorageFile asks for it,
// other programs may not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "terrace/core/clock.hpp"
#include "terrace/core/result.hpp"

namespace terrace::offload {

class ProcessDescriptor;

/// Which file it is, whatever its name.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t number = 0;
  bool operator==(const FileIdentity&) const = default;
};

/// Whether the system's page cache is passed by.
enum class DirectIo : std::uint8_t {
  where_possible,  ///< buffered on file systems that refuse O_DIRECT
  never,
};

struct StorageFileOptions {
  std::string path;
  /// Size of a file that is made, or is empty; its blocks are taken at once. Other files keep their
  /// size.
  std::uint64_t bytes = 0;
  DirectIo direct = DirectIo::where_possible;
  /// How long open() waits for other processes to close the file or device: the system closes the
  /// files of a process that has ended, and of a ring, a moment later.
  Duration patience = std::chrono::seconds(2);
};

/// Threads  safe from any thread, but grow() and undo(); the file is open until this object goes,
///          and in this process alone: a child of fork() has it closed
class StorageFile {
 public:
  /// Transfers begin and end at multiples of so many bytes, in the file and in memory.
  static constexpr std::size_t alignment = 4096;

  /// Opens a file, and makes it where it does not exist, or where a link points to a missing file.
  /// Bytes of an existing file are left as they are. A call that fails changes nothing.
  ///
  /// Errors   invalid_argument: a size of 0, or no multiple of `alignment`, where there is no file;
  ///          io_error naming the file: it cannot be opened, is no regular file and no block
  ///          device, is a device that is mounted, another process has it open, or the disk has no
  ///          room for it
  [[nodiscard]] static Result<StorageFile> open(const StorageFileOptions& options);

  StorageFile(StorageFile&& other) noexcept;
  StorageFile& operator=(StorageFile&&) = delete;
  ~StorageFile();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns the descriptor; -1 in a child of fork().
  [[nodiscard]] int descriptor() const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Whether transfers pass the page cache by.
  [[nodiscard]] bool direct() const noexcept { return direct_; }
  /// Whether open() gave the file its size: it then reads as zeros.
  [[nodiscard]] bool created() const noexcept { return created_; }

  /// Looks, by one system call, whether what is written now will be found again.
  ///
  /// Errors   io_error: the path no longer leads to this file, or the file has become shorter
  [[nodiscard]] Status check_place() const;

  /// Extends a file that is not in use yet; a device keeps its size.
  /// Errors: as open().
  [[nodiscard]] Status grow(std::uint64_t bytes);

  /// Undoes the changes of open() and grow(): a file that was made is removed, an existing file
  /// gets its earlier size back.
  void undo() noexcept;

 private:
  StorageFile(std::string path, int descriptor);
  /// Returns nothing where the file is a device that another process has open.
  [[nodiscard]] static Result<std::unique_ptr<StorageFile>> open_path(const std::string& path);
  /// Returns whether no other process has the lock.
  [[nodiscard]] Result<bool> lock();
  Status measure();

  std::string path_;   ///< as it was named
  std::string place_;  ///< the path from the root: the process may go to another folder
  std::unique_ptr<ProcessDescriptor> descriptor_;
  FileIdentity identity_ = {};
  bool is_device_ = false;
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_before_ = 0;  ///< open()
  bool direct_ = false;
  bool created_ = false;
  bool is_made_ = false;  ///< by open(), where there was none
  bool is_grown_ = false;
};

}  // namespace terrace::offload
