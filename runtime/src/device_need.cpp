#include "device_need.hpp"

#include <algorithm>

#include "reserve_buffer.hpp"
#include "retention/entry_memory.hpp"
#include "rows/pointer_table.hpp"
#include "runtime_state.hpp"
#include "step/selection_lists.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

DeviceNeed::DeviceNeed(const RuntimeState& runtime, std::size_t tokens) noexcept
    : runtime_(runtime),
      tokens_(tokens),
      split_(runtime.budget_grows()
                 ? runtime.grown_split(tokens)
                 : policies::split_budget(runtime.budget_terms(tokens), runtime.policy->traits())) {
}

bool DeviceNeed::may_select() const noexcept {
  return runtime_.policy->traits().selects && split_.selected > 0;
}

std::size_t DeviceNeed::listed_rows() const noexcept {
  return list_count(runtime_.shape(), runtime_.policy->traits().lists) *
         runtime_.room_for(split_.selected);
}

std::size_t DeviceNeed::rows() const noexcept {
  const RuntimeOptions& options = runtime_.options;
  const std::size_t all = divide_up(tokens_ + 1, options.block_tokens);
  const bool keeps_all =
      runtime_.policy->traits().keeps_everything || options.placement == Placement::resident_first;
  const std::size_t layers = options.shape.layers;
  const std::size_t full = keeps_all ? layers : options.dense_layers;
  const std::size_t blocks = full * all + (layers - full) * std::min(all, window_blocks());
  // Device memory is taken slab by slab, and tables have room to grow.
  return align_up(blocks, slab_blocks) * align_up(runtime_.block_bytes(), 64) +
         layers * PointerTable::bytes_for(all);
}

std::size_t DeviceNeed::window_blocks() const noexcept {
  const RetrievalTraits& traits = runtime_.policy->traits();
  const std::size_t size = runtime_.options.block_tokens;
  if (runtime_.drops()) {
    // Until the first flush, which a short prompt puts off, tokens are attended to row by row.
    const std::size_t all = split_.sinks + split_.kept + 2 * split_.window;
    return divide_up(std::min(tokens_, all) + 1, size);
  }
  // Tokens wait in the window until a batch of them is indexed.
  const std::size_t waiting =
      traits.batch_tokens_max > 1
          ? std::min({split_.selected / 2, traits.batch_tokens_max, split_.window}) + 1
          : 0;
  const std::size_t window = std::min(split_.window, tokens_) + 1 + waiting;
  // It begins anywhere in a block, and what has left it goes when the next step begins.
  return divide_up(std::min(split_.sinks, tokens_), size) + divide_up(window, size) + 1;
}

std::size_t DeviceNeed::pseudo_entries() const noexcept {
  return may_select() ? runtime_.policy->pseudo_capacity(with_room(tokens_)) : 0;
}

std::size_t DeviceNeed::attention_entries() const noexcept {
  const RuntimeOptions& options = runtime_.options;
  const bool everything = runtime_.policy->traits().keeps_everything || options.dense_layers > 0 ||
                          options.when == RetrievalWhen::spilled ||
                          options.prompts == PromptAttention::retrieved;
  if (everything) return with_room(tokens_ + 1 + pseudo_entries());
  if (runtime_.drops()) {
    return split_.sinks + runtime_.most_kept(split_.kept) + split_.kept + 2 * split_.window + 1;
  }
  const std::size_t held = runtime_.holds() ? runtime_.most_kept(split_.kept) : 0;
  const std::size_t listed = split_.sinks + split_.window + split_.selected + held + 1;
  return runtime_.room_for(listed + pseudo_entries());
}

std::size_t DeviceNeed::kept_entries() const noexcept {
  if (runtime_.retention == nullptr) return 0;
  std::size_t bytes = 0;
  for (std::size_t i = runtime_.options.dense_layers; i < runtime_.shape().layers; ++i) {
    const auto rooms = runtime_.entry_rooms(static_cast<LayerId>(i), split_, tokens_);
    bytes += EntryLayout(runtime_.shape(), rooms).bytes();
  }
  return bytes;
}

std::size_t DeviceNeed::workspace() const noexcept {
  const KvShape& shape = runtime_.shape();
  const RetrievalTraits& traits = runtime_.policy->traits();
  const std::size_t room = with_room(tokens_);
  std::size_t bytes = sizeof(float) * (attention_scratch_floats(shape, attention_entries()) +
                                       tile_state_floats(shape, 1));
  if (!may_select()) return bytes;
  const std::size_t lists = list_count(shape, traits.lists);
  bytes += lists * pseudo_entries() * (sizeof(std::byte*) + sizeof(float));
  if (traits.estimates_rest) bytes += lists * pseudo_entries() * shape.row_bytes();
  if (traits.lists == ListScope::query_head) {
    bytes += (shape.kv_heads * room + 1) * sizeof(std::uint32_t);
  }
  // A cache of clusters takes over fetched rows, so that each layer fetches into its own memory.
  const CacheOptions& cache = runtime_.options.cache;
  const bool own = !cache.none() && cache.granularity == CacheGranularity::cluster;
  bytes += listed_rows() * shape.row_bytes() * (own ? shape.layers : 1);
  bytes += listed_rows() * (sizeof(std::byte*) + sizeof(MissedRow));
  if (traits.gives_logit_bias) bytes += listed_rows() * sizeof(float);
  return bytes + runtime_.policy->select_scratch_floats(shape, room) * sizeof(float);
}

std::size_t DeviceNeed::selections() const noexcept {
  if (!may_select()) return 0;
  const KvShape& shape = runtime_.shape();
  const std::size_t lists = list_count(shape, runtime_.policy->traits().lists);
  return shape.layers * SelectionLists::bytes_for(lists, runtime_.room_for(split_.selected));
}

std::size_t DeviceNeed::indexes() const noexcept {
  const IndexLayout& layout = runtime_.index_layout;
  if (layout.empty() || !may_select()) return 0;
  const RuntimeOptions& options = runtime_.options;
  const std::size_t layers = options.shape.layers - options.dense_layers;
  // Streamed ones have two places.
  const std::size_t copies = options.index_residency == IndexResidency::host ? 2 : layers;
  const std::size_t chunks = divide_up(tokens_, layout.chunk_tokens);
  return copies *
         (layout.fixed_bytes + chunks * layout.chunk_bytes + PointerTable::bytes_for(chunks));
}

}  // namespace terrace
