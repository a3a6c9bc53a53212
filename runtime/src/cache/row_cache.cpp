#include "row_cache.hpp"

#include <algorithm>

#include "layer/layer.hpp"
#include "memory/reserve_buffer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

constexpr std::size_t slot_words = sizeof(RowSlot) / sizeof(std::uint32_t);

}  // namespace

std::size_t RowCache::blocks_for(std::size_t length) const noexcept {
  return std::min(most_blocks_, divide_up(length, plan_.block_tokens()));
}

std::size_t RowCache::missing_blocks(std::size_t length) const {
  const std::size_t all = blocks_for(length);
  return all - std::min(all, blocks_);
}

Status RowCache::reserve(std::size_t slots, std::size_t length) {
  most_blocks_ = slots;
  // Prompts that attend exactly select nothing, and need the memory for their steps.
  const bool selects = !progress_.in_prompt() || progress_.in_selecting_prompt();
  if (blocks_for(length) == 0 || !selects) return {};
  const Status reserved = memory_.make_spare_room([&] { return reserve_tables(length); });
  if (!reserved) {
    if (reserved.error().code != Errc::out_of_memory) return reserved;
    give_up_device_memory();
    work_.journal.note_loss();
    return {};
  }
  // While all rows are there, nothing is missed that slots could keep.
  if (!layer_.rows.all_on_device(divide_up(length, plan_.block_tokens()))) {
    take_blocks(blocks_for(length));
  }
  return {};
}

Status RowCache::reserve_tables(std::size_t length) {
  const std::size_t heads = plan_.shape().kv_heads;
  Queue& queue = work_.lanes.refill();
  if (length > positions_) {
    const std::size_t positions = with_room(length);
    TERRACE_TRY(numbers_.grow(work_.backend, queue, positions * heads, work_.deadline));
    positions_ = positions;
  }
  const std::size_t blocks = blocks_for(length);
  const std::size_t words = heads + blocks * plan_.block_tokens() * heads * slot_words;
  if (words > slots_.count()) {
    TERRACE_TRY(slots_.grow(work_.backend, queue, words + words / 4, work_.deadline));
  }
  return table_.reserve(work_.backend, blocks);
}

void RowCache::take_blocks(std::size_t count) {
  if (blocks_ >= count || count == lacked_) return;
  for (; blocks_ < count; ++blocks_) {
    std::byte* block = nullptr;
    const Status taken = memory_.make_spare_room([&] {
      return memory_.pools.cached_row_blocks->take().map([&](std::byte* one) { block = one; });
    });
    if (!taken) {
      lacked_ = count;
      return work_.journal.note_loss();
    }
    table_.set(blocks_, block);
  }
}

void RowCache::give_blocks(std::size_t left) {
  // Rows whose slots are gone must not be found any more.
  if (left < blocks_) is_stale_ = true;
  lacked_ = 0;
  while (blocks_ > left) {
    memory_.pools.cached_row_blocks->give(table_[--blocks_]);
    table_.set(blocks_, nullptr);
  }
}

void RowCache::resize(std::size_t slots) {
  most_blocks_ = slots;
  give_blocks(std::min(blocks_, slots));
}

Status RowCache::publish(Queue& compute) {
  if (blocks_ == 0) return {};
  table_.forget_old_copies();
  numbers_.release_zeros();
  slots_.release_zeros();
  if (is_stale_) {
    Status ready = numbers_.prepare_zeros(work_.backend);
    if (ready) ready = slots_.prepare_zeros(work_.backend);
    if (!ready) {
      // The host is short of memory: the layer goes without a cache.
      work_.journal.note_loss();
      give_up_device_memory();
      return {};
    }
    TERRACE_TRY(numbers_.clear(compute).map([](const Ticket&) {}));
    TERRACE_TRY(slots_.clear(compute).map([](const Ticket&) {}));
    is_stale_ = false;
  }
  return table_.flush(compute).map([](const Ticket&) {});
}

CachedRows RowCache::rows() const noexcept {
  if (blocks_ == 0) return {};
  return {.numbers = numbers_.data(),
          .blocks = table_.data(),
          .block_rows = plan_.block_tokens() * plan_.shape().kv_heads};
}

RowSlots RowCache::slots() const noexcept {
  if (blocks_ == 0) return {};
  std::uint32_t* const calls = slots_.data();
  return {.count = blocks_ * plan_.block_tokens(),
          .each = reinterpret_cast<RowSlot*>(calls + plan_.shape().kv_heads),
          .calls = calls};
}

void RowCache::count_token() {
  scratch_.selection.count_slots(layer_, blocks_ > 0, work_.counters);
}

Status RowCache::take_step() {
  const TimePoint begin = work_.clock().now();
  count_token();
  work_.count_upkeep(begin);
  return {};
}

void RowCache::drop_unsettled() {
  is_stale_ = true;
  // Its copy may have failed.
  table_.touch_all();
}

void RowCache::drop_some(double share, Rng& rng) {
  // The host does not know which rows are there.
  if (rng.uniform() < share) is_stale_ = true;
}

bool RowCache::spill() {
  const bool has_memory = blocks_ > 0 || numbers_ || slots_;
  if (!has_memory || !layer_.at_rest()) return false;
  if (blocks_ > 0) work_.journal.note_loss();
  give_up_device_memory();
  return true;
}

void RowCache::give_up_device_memory() {
  give_blocks(0);
  table_.reset();
  numbers_.reset();
  slots_.reset();
  positions_ = 0;
  is_stale_ = false;
}

}  // namespace terrace
