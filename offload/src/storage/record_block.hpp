// Blocks of records, which a container keeps its directory in: in a snapshot of it, and in the
// journal of what has changed since.
//
// A block is right or wrong as a whole: each has a checksum over all of it, its number included, so
// that a block of another place or time is wrong there. Numbers are little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "terrace/core/store.hpp"
#include "terrace/offload/storage_file.hpp"

namespace terrace::offload {

/// Where a page lies, or that there is none any longer; or that no page is known of those recorded
/// before.
struct PageRecord {
  PageKey key = {};
  std::uint64_t offset = 0;     ///< in the file
  std::uint64_t checksum = 0;   ///< of key and bytes
  std::uint32_t bytes = 0;      ///< 0 = the page was erased
  std::uint32_t voids_all = 0;  ///< 1 = all that was recorded before; names no page
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
inline constexpr std::size_t records_of_block = 101;

/// Writes a block of at most records_of_block records.
void write_records(std::span<std::byte> block, const BlockName& name,
                   std::span<const PageRecord> records);

struct RecordBlock {
  BlockName name;
  std::vector<PageRecord> records;
};

/// Returns what a block says; nothing where its bytes are not what was written.
[[nodiscard]] std::optional<RecordBlock> read_records(std::span<const std::byte> block);

/// Returns the checksum of a page, with its key: a page at another's place is wrong there.
[[nodiscard]] std::uint64_t page_checksum(PageKey key, std::span<const std::byte> bytes) noexcept;

}  // namespace terrace::offload
