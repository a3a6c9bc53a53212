#include "sequence_cache.hpp"

#include <algorithm>
#include <utility>

#include "layer/layer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

std::size_t SequenceCache::slot_tokens() const noexcept {
  return cache_slot_tokens(plan_.options.cache.granularity, plan_.shape(), plan_.block_tokens());
}

Status SequenceCache::reserve(std::size_t length) {
  // An empty sequence has no budget yet that said how much.
  if (plan_.options.cache.none() || !plan_.selects() || !progress_.budget().resolved) {
    return {};
  }
  if (!joined()) {
    all_sharers_.enter();
    if (const Status fitted = fit(); !fitted) {
      all_sharers_.leave();
      return fitted;
    }
  }
  for (const auto& layer : layers_) {
    if (!plan_.is_dense(layer->number)) TERRACE_TRY(layer->cache->reserve(slots(), length));
  }
  return {};
}

Status SequenceCache::fit() {
  const CacheOptions& options = plan_.options.cache;
  const std::size_t sharers = all_sharers_.count();
  const bool same = sharers == sharers_ && progress_.list_rows() == list_rows_;
  if (options.none() || !plan_.selects() || same) return {};
  // An announced prompt tells how much will be selected after it.
  const std::size_t selected =
      std::max(progress_.split().selected, progress_.split_at(progress_.length()).selected);
  const std::size_t slots = cache_slots(
      options, {.slot_tokens = slot_tokens(), .selected_tokens = selected, .sharers = sharers});
  for (const auto& layer : layers_) TERRACE_TRY(layer->cache->await_changes());
  sharers_ = sharers;
  list_rows_ = progress_.list_rows();
  tokens_ = slots * slot_tokens();
  for (const auto& layer : layers_) {
    if (!plan_.is_dense(layer->number)) layer->cache->resize(slots);
  }
  work_.journal.note_share(sharers);
  return {};
}

void SequenceCache::leave() {
  if (std::exchange(sharers_, 0) != 0) all_sharers_.leave();
}

void SequenceCache::place_seeds(TokenRange prompt) {
  if (plan_.options.placement == Placement::resident_first) return;
  // Layers that attend to all rows come first, and have no cache.
  if (!layers_.back()->cache->keeps_blocks()) return;
  const std::size_t block_tokens = plan_.block_tokens();
  // Blocks that hold tokens of an earlier prompt are on the host only.
  const std::size_t begin = divide_up(prompt.begin, block_tokens);
  const std::size_t end = std::max(begin, progress_.window_at(prompt.end).begin / block_tokens);
  const std::size_t count = std::min(tokens_ / block_tokens, end - begin);
  // Nearest to the window first: those the next queries are likeliest to want. Where memory runs
  // out no layer has more than another.
  for (std::size_t block = end; block-- > end - count;) {
    for (const auto& layer : layers_) place_seed(*layer, block);
  }
}

void SequenceCache::place_seed(Layer& layer, std::size_t block) {
  if (!layer.rows.absent(block)) return;
  const Result<std::byte*> slot = memory_.pools.blocks->take();
  if (!slot) return work_.journal.note_loss();
  layer.rows.put(block, *slot, BlockPlace::resident);
}

void SequenceCache::reserve_blocks(std::size_t length) {
  // Where all is kept that fits, caches have what is left over.
  if (!joined() || plan_.options.placement == Placement::resident_first) return;
  std::size_t blocks = 0;
  for (const auto& layer : layers_) {
    if (!plan_.is_dense(layer->number)) blocks += layer->cache->missing_blocks(length);
  }
  if (blocks > 0) memory_.pools.cached_row_blocks->reserve(blocks);
}

Status SequenceCache::send_changes(LayerSpan layers) {
  if (!joined() || layers.empty()) return {};
  const TimePoint begin = work_.clock().now();
  for (const auto& layer : layers) TERRACE_TRY(layer->cache->send_changes());
  work_.count_upkeep(begin);
  return {};
}

}  // namespace terrace
