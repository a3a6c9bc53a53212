#include "sequence_cache.hpp"

#include <algorithm>
#include <utility>

#include "sequence/layer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

std::size_t SequenceCache::slot_tokens() const noexcept {
  return cache_slot_tokens(context_.options().cache.granularity, context_.shape(),
                           context_.block_tokens());
}

Status SequenceCache::reserve(std::size_t length) {
  // An empty sequence has no budget yet that said how much.
  if (context_.options().cache.none() || !context_.selects() || !context_.budget_resolved) {
    return {};
  }
  if (!joined()) {
    context_.runtime.enter_cache();
    if (const Status fitted = fit(); !fitted) {
      context_.runtime.leave_cache();
      return fitted;
    }
  }
  for (const auto& layer : layers_) TERRACE_TRY(layer->cache->reserve(slots(), length));
  return {};
}

Status SequenceCache::fit() {
  const CacheOptions& options = context_.options().cache;
  const std::size_t sharers = context_.runtime.cache_sharers();
  const bool same = sharers == sharers_ && context_.list_rows() == list_rows_;
  if (options.none() || !context_.selects() || same) return {};
  // An announced prompt tells how much will be selected after it.
  const std::size_t selected =
      std::max(context_.split.selected, context_.split_at(context_.length).selected);
  const std::size_t slots = cache_slots(
      options, {.slot_tokens = slot_tokens(), .selected_tokens = selected, .sharers = sharers});
  for (const auto& layer : layers_) TERRACE_TRY(layer->cache->await_changes());
  sharers_ = sharers;
  list_rows_ = context_.list_rows();
  tokens_ = slots * slot_tokens();
  for (const auto& layer : layers_) layer->cache->resize(slots);
  context_.journal.note_share(sharers);
  return {};
}

void SequenceCache::leave() {
  if (std::exchange(sharers_, 0) != 0) context_.runtime.leave_cache();
}

void SequenceCache::place_seeds(TokenRange prompt) {
  if (context_.options().placement == Placement::resident_first) return;
  if (!layers_.front()->cache->keeps_blocks()) return;
  const std::size_t block_tokens = context_.block_tokens();
  // Blocks that hold tokens of an earlier prompt are on the host only.
  const std::size_t begin = divide_up(prompt.begin, block_tokens);
  const std::size_t end = std::max(begin, context_.window_at(prompt.end).begin / block_tokens);
  const std::size_t count = std::min(tokens_ / block_tokens, end - begin);
  // Nearest to the window first: those the next queries are likeliest to want. Where memory runs
  // out no layer has more than another.
  for (std::size_t block = end; block-- > end - count;) {
    for (const auto& layer : layers_) place_seed(*layer, block);
  }
}

void SequenceCache::place_seed(Layer& layer, std::size_t block) {
  if (!layer.rows.absent(block)) return;
  const Result<std::byte*> slot = context_.runtime.take_spare_block();
  if (!slot) return context_.journal.note_loss();
  layer.rows.put(block, *slot, BlockPlace::resident);
}

void SequenceCache::reserve_blocks(std::size_t length) {
  // Where all is kept that fits, caches have what is left over.
  if (!joined() || context_.options().placement == Placement::resident_first) return;
  std::size_t blocks = 0;
  for (const auto& layer : layers_) blocks += layer->cache->missing_blocks(length);
  if (blocks > 0) context_.runtime.reserve_cluster_blocks(blocks);
}

Status SequenceCache::send_changes(LayerSpan layers) {
  if (!joined() || layers.empty()) return {};
  const TimePoint begin = context_.clock().now();
  for (const auto& layer : layers) TERRACE_TRY(layer->cache->send_changes());
  context_.count_upkeep(begin);
  return {};
}

}  // namespace terrace
