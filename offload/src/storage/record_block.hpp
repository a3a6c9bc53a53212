// Blocks of records, which a container keeps its directory in: in a snapshot of it, and in the
// journal of what has changed since.
//
// A block is right or wrong as a whole: each has a checksum over all of it, its number included, so
// that a block of another place or time is wrong there. Numbers are little-endian.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "page_parts.hpp"
#include "terrace/core/store.hpp"
#include "terrace/offload/storage_file.hpp"

namespace terrace::offload {

/// Checksums of the parts of a page. Most pages have one part.
class PartChecksums {
 public:
  PartChecksums() = default;
  /// Computes the checksums of a page's parts. Each covers key, number and bytes: a part at the
  /// place of another part does not match there.
  PartChecksums(PageKey key, std::span<const std::byte> page, const PageParts& parts);
  /// Takes over the first checksum, and the bytes of the other ones.
  PartChecksums(std::uint64_t first, std::span<const std::byte> more);

  [[nodiscard]] std::size_t count() const noexcept { return more_count_ + std::size_t{1}; }
  [[nodiscard]] std::uint64_t operator[](std::size_t number) const noexcept {
    return number == 0 ? first_ : more_[static_cast<std::ptrdiff_t>(number - 1)];
  }
  /// Returns whether whole parts of a page, which begin at `begin`, are as they were.
  [[nodiscard]] bool match(PageKey key, std::span<const std::byte> bytes, std::uint64_t begin,
                           const PageParts& parts) const noexcept;

 private:
  std::uint64_t first_ = 0;
  std::uint32_t more_count_ = 0;
  std::shared_ptr<const std::uint64_t[]> more_;  ///< never changed, so that copies share it
};

/// A page in the file.
struct StoredPage {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
  PartChecksums checksums = {};
};

/// The place of a page, or its erasure; or the loss of all pages recorded before.
struct PageRecord {
  PageKey key = {};
  StoredPage page = {};    ///< of 0 bytes: the page was erased
  bool voids_all = false;  ///< all that was recorded before; names no page
};

enum class RecordPurpose : std::uint64_t { journal = 1, snapshot = 2 };

/// Which block it is: of two that differ in anything, one is not taken for the other.
struct BlockName {
  RecordPurpose purpose = RecordPurpose::journal;
  std::uint64_t generation = 0;  ///< of the snapshot; in a journal, of the machine: boot_mark()
  std::uint64_t number = 0;      ///< since the container was made, or within the snapshot
  bool operator==(const BlockName&) const = default;
};

inline constexpr std::size_t record_block_bytes = StorageFile::alignment;
/// Most records of a block: those of pages of one part.
inline constexpr std::size_t records_of_block = 101;

/// Returns how many blocks records of at most so many pages take, which have at most so many parts
/// beyond one each.
[[nodiscard]] std::uint64_t record_blocks_max(std::uint64_t pages, std::uint64_t more_parts);

/// Returns how many of the first records fit into a block; at least one, where there is one.
[[nodiscard]] std::size_t count_of_block(std::span<const PageRecord> records) noexcept;

/// Writes a block of records that fit.
void write_records(std::span<std::byte> block, const BlockName& name,
                   std::span<const PageRecord> records);

struct RecordBlock {
  BlockName name;
  std::vector<PageRecord> records;
};

/// Returns what a block says; nothing where its bytes are not what was written.
[[nodiscard]] std::optional<RecordBlock> read_records(std::span<const std::byte> block);

}  // namespace terrace::offload
