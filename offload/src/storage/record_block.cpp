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

static_assert(sizeof(PageRecord) == 40 && sizeof(Head) == 40);
static_assert(sizeof(Head::checksum) == seal_bytes);
static_assert(sizeof(Head) + records_of_block * sizeof(PageRecord) <= record_block_bytes);

}  // namespace

void write_records(std::span<std::byte> block, const BlockName& name,
                   std::span<const PageRecord> records) {
  TERRACE_ASSERT(block.size() == record_block_bytes && records.size() <= records_of_block);
  std::ranges::fill(block, std::byte{});
  const Head head{.purpose = static_cast<std::uint64_t>(name.purpose),
                  .generation = name.generation,
                  .number = name.number,
                  .count = records.size()};
  std::memcpy(block.data(), &head, sizeof head);
  if (!records.empty()) {
    std::memcpy(block.data() + sizeof head, records.data(), records.size_bytes());
  }
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
                    .records = std::vector<PageRecord>(head.count)};
  if (head.count > 0) {
    std::memcpy(found.records.data(), block.data() + sizeof head, head.count * sizeof(PageRecord));
  }
  return found;
}

std::uint64_t page_checksum(PageKey key, std::span<const std::byte> bytes) noexcept {
  const std::uint64_t words[] = {key.high, key.low};
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), XXH3_64bits(words, sizeof words));
}

}  // namespace terrace::offload
