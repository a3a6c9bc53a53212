#include "container_layout.hpp"

#include <algorithm>
#include <cstring>

#include "sealed_block.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::offload {
namespace {

constexpr std::array<char, 8> magic{'T', 'e', 'r', 'r', 'a', 'c', 'e', '\n'};
constexpr std::uint32_t version = 2;  // version 1: one checksum for a page
constexpr std::uint64_t journal_blocks_min = 64;

/// As it lies in the file.
struct Written {
  std::uint64_t checksum = 0;  ///< written by seal()
  std::array<char, 8> magic = {};
  std::uint32_t version = 0;
  std::uint32_t contents_bytes = 0;
  std::uint64_t generation = 0;
  std::uint64_t snapshot_records = 0;
  std::uint64_t snapshot_blocks = 0;
  std::uint64_t first_number = 0;
  std::uint64_t pages_max = 0;
  std::uint64_t part_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::array<char, Superblock::contents_max> contents = {};
};
static_assert(sizeof(Written) <= superblock_bytes);
static_assert(sizeof(Written::checksum) == seal_bytes);

}  // namespace

Result<ContainerLayout> ContainerLayout::divide(const Superblock& superblock,
                                                std::string_view path) {
  // More than one a byte are too many; and the bytes of their records would be no number.
  const std::uint64_t pages = std::min(superblock.pages_max, superblock.file_bytes);
  const std::uint64_t snapshot_blocks =
      record_blocks_max(pages, superblock.file_bytes / superblock.part_bytes);
  ContainerLayout layout;
  std::uint64_t at = superblock_copies * superblock_bytes;
  const auto next = [&at](std::uint64_t blocks) {
    const FilePart part{at, blocks * disk_block};
    at = part.end();
    return part;
  };
  // Snapshots become due before half of it is full: the longer it is, the fewer there are.
  layout.journal = next(journal_copies * std::max(journal_blocks_min, snapshot_blocks / 4));
  for (FilePart& snapshot : layout.snapshots) snapshot = next(snapshot_blocks);
  const std::uint64_t file_blocks = superblock.file_bytes / disk_block;
  if (at / disk_block + 1 >= file_blocks) {
    return fail(Errc::invalid_argument,
                "{}: has {}, and a directory of {} pages alone takes {}: name more bytes, or fewer "
                "pages",
                path, format_size(superblock.file_bytes), superblock.pages_max, format_size(at));
  }
  layout.pages = {at, (file_blocks - 1) * disk_block - at};
  return layout;
}

void write_superblock(std::span<std::byte> bytes, const Superblock& superblock) {
  TERRACE_ASSERT(bytes.size() == superblock_bytes);
  TERRACE_ASSERT(superblock.contents.size() <= Superblock::contents_max);
  Written written{.magic = magic,
                  .version = version,
                  .contents_bytes = static_cast<std::uint32_t>(superblock.contents.size()),
                  .generation = superblock.generation,
                  .snapshot_records = superblock.snapshot_records,
                  .snapshot_blocks = superblock.snapshot_blocks,
                  .first_number = superblock.first_number,
                  .pages_max = superblock.pages_max,
                  .part_bytes = superblock.part_bytes,
                  .file_bytes = superblock.file_bytes};
  std::ranges::copy(superblock.contents, written.contents.begin());
  std::ranges::fill(bytes, std::byte{});
  std::memcpy(bytes.data(), &written, sizeof written);
  seal(bytes);
}

Result<std::optional<Superblock>> read_superblock(std::span<const std::byte> bytes,
                                                  std::string_view path) {
  TERRACE_ASSERT(bytes.size() == superblock_bytes);
  Written written;
  std::memcpy(&written, bytes.data(), sizeof written);
  if (written.magic != magic || !is_sealed(bytes)) return std::nullopt;
  if (written.version != version) {
    return fail(Errc::unsupported,
                "{}: is a container of version {}, and this is a program for version {}: use that "
                "of the other version, or remove the file, and with it what it holds",
                path, written.version, version);
  }
  return Superblock{
      .generation = written.generation,
      .snapshot_records = written.snapshot_records,
      .snapshot_blocks = written.snapshot_blocks,
      .first_number = written.first_number,
      .pages_max = written.pages_max,
      .part_bytes = written.part_bytes,
      .file_bytes = written.file_bytes,
      .contents = {written.contents.data(),
                   std::min<std::size_t>(written.contents_bytes, written.contents.size())}};
}

}  // namespace terrace::offload
