// Where in a container's file its parts lie, and the block at its beginning that says so.
//
//   superblock | superblock | journal | snapshot | snapshot | pages | a block that is never written
//
// A write beyond the end of a file that was cut makes the file longer again. The last block is
// never written, so no write gives such a file its size back.
//
// The superblock is there twice, written one after the other: one of the two is always whole, and
// the other is mended when the file is opened. It names the snapshot that holds, and the first
// block of the journal that changes it; the other snapshot's place is free for the next one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "record_block.hpp"
#include "terrace/core/result.hpp"

namespace terrace::offload {

/// All places and sizes are multiples of it.
inline constexpr std::size_t disk_block = StorageFile::alignment;
/// Most that one transfer of recovery reads or writes.
inline constexpr std::size_t piece_bytes = std::size_t{1} << 20;

inline constexpr std::size_t superblock_bytes = disk_block;
inline constexpr std::size_t superblock_copies = 2;
/// Each block of the journal is there so often, side by side: if it were lost, a page would be as
/// it was before.
inline constexpr std::size_t journal_copies = 2;

/// A part of the file, of whole blocks.
struct FilePart {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  [[nodiscard]] std::uint64_t blocks() const noexcept { return bytes / StorageFile::alignment; }
  [[nodiscard]] std::uint64_t end() const noexcept { return begin + bytes; }
  bool operator==(const FilePart&) const = default;
};

struct ContainerLayout {
  FilePart journal = {};
  std::array<FilePart, 2> snapshots = {};
  FilePart pages = {};
  bool operator==(const ContainerLayout&) const = default;

  /// Divides a file of `superblock.file_bytes`, by what it says of pages.
  /// Errors: invalid_argument: the file is too small for these and a page.
  [[nodiscard]] static Result<ContainerLayout> divide(const struct Superblock& superblock,
                                                      std::string_view path);
};

struct Superblock {
  static constexpr std::size_t contents_max = 512;

  std::uint64_t generation = 0;  ///< of the snapshot that holds; odd ones lie in the second place
  std::uint64_t snapshot_records = 0;
  std::uint64_t snapshot_blocks = 0;
  std::uint64_t first_number = 0;  ///< of the journal's blocks: the first that is newer
  std::uint64_t pages_max = 0;
  std::uint64_t part_bytes = 0;  ///< of pages: PageParts
  std::uint64_t file_bytes = 0;
  std::string contents = {};  ///< the store's: whose pages they are
};

void write_superblock(std::span<std::byte> block, const Superblock& superblock);

/// Returns what a block says; nothing where it is no superblock, or damaged.
///
/// Errors   unsupported: it is one of another version
[[nodiscard]] Result<std::optional<Superblock>> read_superblock(std::span<const std::byte> block,
                                                                std::string_view path);

}  // namespace terrace::offload
