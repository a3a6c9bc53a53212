// Indexes built anew in the background as the sequence grows: beside each step at most one slice of
// work runs on a queue that no step waits for. A finished index takes over between two steps; what
// came since is added to it as to any index.
#include <algorithm>
#include <cstring>

#include "../sequence_state.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

Status SequenceState::refresh_indexes() {
  const std::size_t due = runtime_.options.refresh.tokens;
  if (due == 0 || runtime_.index_layout.empty()) return {};
  if (refresh_.layer) {
    const Result<bool> done = poll(refresh_.slice);
    if (done && !*done) return {};
    return continue_refresh();
  }
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerIndex& index = layers_[layer].index;
    if (index.building || index.tokens.end < index.fresh_end + due) continue;
    return start_refresh(layer);
  }
  return {};
}

Status SequenceState::start_refresh(std::size_t layer) {
  const LayerIndex& index = layers_[layer].index;
  const IndexLayout& layout = runtime_.index_layout;
  // The last block is still being written.
  const TokenRange tokens{index.tokens.begin, index.tokens.end / block_tokens() * block_tokens()};
  if (tokens.end <= tokens.begin) return {};
  TERRACE_TRY(refresh_.memory.reserve(*runtime_.backend, layout,
                                      divide_up(index.tokens.size(), layout.chunk_tokens)));
  if (layout.fixed_bytes > 0) {
    std::memcpy(refresh_.memory.fixed(), index.host.fixed(), layout.fixed_bytes);
  }
  refresh_.blocks.clear();
  for (std::size_t block = 0; block * block_tokens() < tokens.end; ++block) {
    refresh_.blocks.push_back(layers_[layer].host_blocks[block]);
  }
  refresh_.tokens = tokens;
  refresh_.next_part = refresh_.parts = 0;
  refresh_.status = {};
  refresh_.layer = layer;
  return continue_refresh();
}

Status SequenceState::continue_refresh() {
  if (!refresh_.status) {
    // The index there is goes on; the next batch of tokens brings another try.
    layers_[*refresh_.layer].index.fresh_end = refresh_.tokens.end;
    refresh_.layer.reset();
    return {};
  }
  if (refresh_.parts > 0 && refresh_.next_part == refresh_.parts) return publish_refresh();
  BuildRequest request = index_request(*refresh_.layer, refresh_.tokens);
  request.rows = {.blocks = refresh_.blocks.data(), .block_tokens = block_tokens()};
  request.fixed = refresh_.memory.fixed();
  request.index = refresh_.memory.view(runtime_.index_layout, refresh_.tokens.begin);
  request.anew = true;
  refresh_.parts = runtime_.policy->build_parts(request);
  TERRACE_ASSIGN(refresh_.slice, refresh_queue_->call(Phase::cluster, [this, request]() mutable {
    request.deadline = request.clock->now() + runtime_.options.refresh.slice;
    const auto next = runtime_.policy->build_some(request, refresh_.next_part);
    refresh_.status = next.map([](std::size_t) {});
    if (next) refresh_.next_part = *next;
    return std::size_t{0};
  }));
  return {};
}

Status SequenceState::publish_refresh() {
  LayerState& layer = layers_[*refresh_.layer];
  LayerIndex& index = layer.index;
  // What still codes into the old index, or copies it, must have ended.
  const Result<bool> coded = poll(index.coded);
  const Result<bool> uploaded = poll(index.uploaded);
  if (!coded || !uploaded || !*coded || !*uploaded) return {};
  const std::size_t end = index.tokens.end;
  std::swap(index.host, refresh_.memory);
  layer.members_stale = layer.clusters_renamed = true;
  index.tokens.end = refresh_.tokens.end;
  index.fresh_end = refresh_.tokens.end;
  index.trained = refresh_.tokens.size();
  const std::size_t refreshed = *refresh_.layer;
  refresh_.layer.reset();
  ++counters_.refreshes;
  TERRACE_TRY(extend_index(refreshed, end));
  TERRACE_ASSIGN(const std::size_t bytes, upload_index(layer, index.tokens, /*with_fixed=*/true));
  counters_.bytes.index += bytes;
  return {};
}

}  // namespace terrace
