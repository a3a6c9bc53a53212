#include "terrace/tuning/row_replay.hpp"

#include <algorithm>

#include "terrace/core/bytes.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::tuning {
namespace {

std::byte nowhere;  // where rows of no bytes lie

}  // namespace

RowReplay::RowReplay(std::size_t kv_heads, std::size_t block_tokens)
    : shape_{.layers = 1, .query_heads = kv_heads, .kv_heads = kv_heads, .head_dim = 0},
      block_tokens_(block_tokens),
      calls_(kv_heads),
      counts_(kv_heads),
      id_counts_(kv_heads) {}

void RowReplay::resize(std::size_t blocks) {
  most_blocks_ = blocks;
  if (blocks >= blocks_) return;
  blocks_ = blocks;
  forget();
}

void RowReplay::forget() {
  std::ranges::fill(numbers_, 0U);
  std::ranges::fill(slots_, RowSlot{});
  std::ranges::fill(calls_, 0U);
}

void RowReplay::make_room(std::size_t length) {
  const std::size_t blocks = divide_up(length, block_tokens_);
  blocks_ = std::max(blocks_, std::min(most_blocks_, blocks));
  if (no_blocks_.size() < blocks) no_blocks_.resize(blocks, nullptr);
  if (numbers_.size() < length * shape_.kv_heads) numbers_.resize(2 * length * shape_.kv_heads);
  if (slots_.size() < blocks_ * block_rows()) slots_.resize(blocks_ * block_rows());
  if (cached_blocks_.size() < blocks_) cached_blocks_.resize(blocks_, &nowhere);
}

void RowReplay::list_rows(std::span<const policies::WantedUnit> wanted) {
  const auto heads = static_cast<std::uint32_t>(shape_.kv_heads);
  std::ranges::fill(id_counts_, 0U);
  for (const policies::WantedUnit& each : wanted) ++id_counts_[each.unit % heads];
  stride_ = std::max<std::size_t>({stride_, 1, std::ranges::max(id_counts_)});
  ids_.resize(stride_ * heads);
  rows_.resize(ids_.size());
  missed_.resize(ids_.size());
  std::ranges::fill(id_counts_, 0U);
  for (const policies::WantedUnit& each : wanted) {
    const std::uint32_t head = each.unit % heads;
    ids_[head * stride_ + id_counts_[head]++] = each.unit / heads;
  }
}

RowReplay::Step RowReplay::step(std::span<const policies::WantedUnit> wanted, std::size_t length) {
  make_room(length);
  list_rows(wanted);
  Step step;
  std::ranges::fill(counts_, RowSlotCounts{});
  kernels::host::resolve_rows(
      {.shape = shape_,
       .ids = ids_.data(),
       .id_count = id_counts_.data(),
       .id_stride = stride_,
       .resident = {.blocks = no_blocks_.data(), .block_tokens = block_tokens_},
       .cached = {numbers_.data(), cached_blocks_.data(), block_rows()},
       .slots = {.count = blocks_ * block_tokens_, .each = slots_.data(), .calls = calls_.data()},
       .slot_counts = counts_.data(),
       .staging = &nowhere,
       .rows = rows_.data(),
       .missed = missed_.data(),
       .missed_count = &step.missed});
  for (const RowSlotCounts& head : counts_) {
    step.counts.found += head.found;
    step.counts.admitted += head.admitted;
    step.counts.evicted += head.evicted;
  }
  return step;
}

}  // namespace terrace::tuning
