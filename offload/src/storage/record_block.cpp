#include "record_block.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "sealed_block.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::offload {
namespace {

struct Head {
  std::uint64_t checksum = 0;  ///< written by seal()
  std::uint64_t purpose = 0;
  std::uint64_t generation = 0;
  std::uint64_t number = 0;
  std::uint64_t count = 0;
};

/// A record as it lies in the file, before the checksums of all parts but the first.
struct WrittenRecord {
  PageKey key = {};
  std::uint64_t offset = 0;
  std::uint64_t checksum = 0;
  std::uint32_t bytes = 0;
  std::uint16_t more_parts = 0;
  std::uint16_t voids_all = 0;
};

constexpr std::size_t room = record_block_bytes - sizeof(Head);
constexpr std::size_t checksum_bytes = sizeof(std::uint64_t);
constexpr std::size_t record_bytes_max =
    sizeof(WrittenRecord) + (PageParts::count_max - 1) * checksum_bytes;

static_assert(sizeof(WrittenRecord) == 40 && sizeof(Head) == 40);
static_assert(sizeof(Head::checksum) == seal_bytes);
static_assert(records_of_block == room / sizeof(WrittenRecord));
static_assert(record_bytes_max <= room);

std::size_t written_bytes(const PageRecord& record) noexcept {
  return sizeof(WrittenRecord) + (record.page.checksums.count() - 1) * checksum_bytes;
}

std::uint64_t part_checksum(PageKey key, std::uint64_t number,
                            std::span<const std::byte> bytes) noexcept {
  const std::uint64_t words[] = {key.high, key.low, number};
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), XXH3_64bits(words, sizeof words));
}

std::byte* write_record(std::byte* to, const PageRecord& record) {
  const PartChecksums& checksums = record.page.checksums;
  const WrittenRecord written{.key = record.key,
                              .offset = record.page.offset,
                              .checksum = checksums[0],
                              .bytes = record.page.bytes,
                              .more_parts = static_cast<std::uint16_t>(checksums.count() - 1),
                              .voids_all = static_cast<std::uint16_t>(record.voids_all ? 1 : 0)};
  std::memcpy(to, &written, sizeof written);
  to += sizeof written;
  for (std::size_t number = 1; number < checksums.count(); ++number, to += checksum_bytes) {
    const std::uint64_t checksum = checksums[number];
    std::memcpy(to, &checksum, sizeof checksum);
  }
  return to;
}

/// Takes the first record out of some bytes; nothing where they hold none.
std::optional<PageRecord> take_record(std::span<const std::byte>& from) {
  WrittenRecord written;
  if (from.size() < sizeof written) return std::nullopt;
  std::memcpy(&written, from.data(), sizeof written);
  from = from.subspan(sizeof written);
  const std::size_t more_bytes = written.more_parts * checksum_bytes;
  if (from.size() < more_bytes) return std::nullopt;
  const auto more = from.first(more_bytes);
  from = from.subspan(more_bytes);
  return PageRecord{.key = written.key,
                    .page = {.offset = written.offset,
                             .bytes = written.bytes,
                             .checksums = {written.checksum, more}},
                    .voids_all = written.voids_all != 0};
}

}  // namespace

PartChecksums::PartChecksums(PageKey key, std::span<const std::byte> page, const PageParts& parts)
    : more_count_(static_cast<std::uint32_t>(parts.count() - 1)) {
  const auto more = more_count_ > 0 ? std::make_shared<std::uint64_t[]>(more_count_) : nullptr;
  for (std::uint64_t number = 0; number < parts.count(); ++number) {
    const PagePiece part = parts.part(number);
    const auto checksum = part_checksum(key, number, page.subspan(part.begin, part.bytes));
    (number == 0 ? first_ : more[static_cast<std::ptrdiff_t>(number - 1)]) = checksum;
  }
  more_ = more;
}

PartChecksums::PartChecksums(std::uint64_t first, std::span<const std::byte> more)
    : first_(first), more_count_(static_cast<std::uint32_t>(more.size() / checksum_bytes)) {
  if (more_count_ == 0) return;
  const auto copy = std::make_shared<std::uint64_t[]>(more_count_);
  std::memcpy(copy.get(), more.data(), more.size());
  more_ = copy;
}

bool PartChecksums::match(PageKey key, std::span<const std::byte> bytes, std::uint64_t begin,
                          const PageParts& parts) const noexcept {
  for (std::uint64_t at = begin; at < begin + bytes.size(); at += parts.part_bytes()) {
    const std::uint64_t number = at / parts.part_bytes();
    const std::uint64_t size = parts.part(number).bytes;
    if (part_checksum(key, number, bytes.subspan(at - begin, size)) != (*this)[number]) {
      return false;
    }
  }
  return true;
}

std::uint64_t record_blocks_max(std::uint64_t pages, std::uint64_t more_parts) {
  // The rest of a block, which is too small for the next record, is at most as large as checksums
  // of that one and a record without them but a word.
  constexpr std::size_t used_min = room - sizeof(WrittenRecord) + checksum_bytes;
  return (pages * sizeof(WrittenRecord) + 2 * more_parts * checksum_bytes) / used_min + 1;
}

std::size_t count_of_block(std::span<const PageRecord> records) noexcept {
  std::size_t bytes = 0;
  std::size_t count = 0;
  for (const PageRecord& record : records) {
    bytes += written_bytes(record);
    if (bytes > room) break;
    ++count;
  }
  return count;
}

void write_records(std::span<std::byte> block, const BlockName& name,
                   std::span<const PageRecord> records) {
  TERRACE_ASSERT(block.size() == record_block_bytes && count_of_block(records) == records.size());
  std::ranges::fill(block, std::byte{});
  const Head head{.purpose = static_cast<std::uint64_t>(name.purpose),
                  .generation = name.generation,
                  .number = name.number,
                  .count = records.size()};
  std::memcpy(block.data(), &head, sizeof head);
  std::byte* to = block.data() + sizeof head;
  for (const PageRecord& record : records) to = write_record(to, record);
  seal(block);
}

std::optional<RecordBlock> read_records(std::span<const std::byte> block) {
  TERRACE_ASSERT(block.size() == record_block_bytes);
  Head head;
  std::memcpy(&head, block.data(), sizeof head);
  if (!is_sealed(block) || head.count > records_of_block) return std::nullopt;
  RecordBlock found{.name = {.purpose = static_cast<RecordPurpose>(head.purpose),
                             .generation = head.generation,
                             .number = head.number},
                    .records = {}};
  found.records.reserve(head.count);
  std::span<const std::byte> rest = block.subspan(sizeof head);
  for (std::uint64_t i = 0; i < head.count; ++i) {
    auto record = take_record(rest);
    if (!record) return std::nullopt;
    found.records.push_back(std::move(*record));
  }
  return found;
}

}  // namespace terrace::offload
