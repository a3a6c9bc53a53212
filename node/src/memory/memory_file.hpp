// Memory that two processes share by a descriptor: a file without a name, whose size is sealed.
//
//   TERRACE_ASSIGN(MemoryFile pool, MemoryFile::create({.name = "parts", .bytes = bytes}));
//   TERRACE_TRY(pool.forbid_other_writers());      // this process's mapping alone may write
//   send(pool.descriptor());
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sockets/descriptor.hpp"
#include "terrace/core/result.hpp"

namespace terrace::node {

enum class PageSize : std::uint8_t {
  usual,
  huge_if_free,  ///< the kernel is asked for them, and gives what it has
  huge,          ///< from the machine's reserve of huge pages, or an error
};

/// A mapping that ends with this object.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  /// Maps a file of that size. Errors: invalid_argument: the file has another size, or may shrink;
  /// out_of_memory.
  [[nodiscard]] static Result<Mapping> of(const Descriptor& file, std::uint64_t bytes,
                                          bool may_write);

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

struct MemoryFileOptions {
  const char* name = "";  ///< as /proc shows it
  std::uint64_t bytes = 0;
  PageSize pages = PageSize::usual;
};

class MemoryFile {
 public:
  /// Its bytes are zero, and take memory once they are touched.
  ///
  /// Errors   out_of_memory: no memory, or no descriptor is left
  [[nodiscard]] static Result<MemoryFile> create(const MemoryFileOptions& options);

  /// Maps it for writing, here.
  [[nodiscard]] Result<Mapping> map() const { return Mapping::of(file_, bytes_, true); }

  /// From now on nobody can write to it but by mappings that are there, whichever way a process
  /// opens it, and the descriptor is one for reading. Errors: unsupported: a kernel before 5.1.
  [[nodiscard]] Status forbid_other_writers();

  [[nodiscard]] const Descriptor& descriptor() const noexcept { return file_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  MemoryFile(Descriptor file, std::uint64_t bytes) noexcept
      : file_(std::move(file)), bytes_(bytes) {}

  Descriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace terrace::node
