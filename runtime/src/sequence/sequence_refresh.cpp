// Indexes built anew in the background as the sequence grows: beside each step at most one slice of
// work runs on a queue that no step waits for. Tokens that come meanwhile are added to both
// indexes; the new one takes over between two steps, when it lacks few.
#include <algorithm>
#include <cstring>
#include <optional>

#include "../sequence_state.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

Status SequenceState::refresh_indexes() {
  const std::size_t due = runtime_.options.refresh.tokens;
  if (due == 0 || runtime_.index_layout.empty()) return {};
  if (refresh_.layer) {
    const Result<bool> done = poll(refresh_.slice);
    if (!done) return give_refresh_up();
    return *done ? continue_refresh() : Status{};
  }
  // The one that waits longest: where building one takes long, the first layers would be due again
  // before the last ones ever had their turn.
  std::optional<std::size_t> stalest;
  std::size_t most = 0;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const LayerIndex& index = layers_[layer].index;
    if (index.building || index.tokens.empty()) continue;
    const std::size_t since = index.tokens.end - index.fresh_end;
    if (since < std::max(due, most + 1)) continue;
    stalest = layer;
    most = since;
  }
  return stalest ? start_refresh(*stalest) : Status{};
}

Status SequenceState::start_refresh(std::size_t layer) {
  const LayerIndex& index = layers_[layer].index;
  const IndexLayout& layout = runtime_.index_layout;
  // The last block is still being written.
  const TokenRange tokens{index.tokens.begin, index.tokens.end / block_tokens() * block_tokens()};
  if (tokens.end <= tokens.begin) return {};
  refresh_.layer = layer;
  refresh_.built = tokens;
  refresh_.take_on(tokens, length_);
  refresh_.batches.assign(1, tokens.begin);
  if (!reserve_refresh()) return give_refresh_up();
  if (layout.fixed_bytes > 0) {
    std::memcpy(refresh_.memory.fixed(), index.host.fixed(), layout.fixed_bytes);
  }
  refresh_.blocks.clear();
  note_refresh_blocks(tokens.end);
  return continue_refresh();
}

Status SequenceState::reserve_refresh() {
  const IndexLayout& layout = runtime_.index_layout;
  const std::size_t tokens = layers_[*refresh_.layer].index.tokens.size();
  return refresh_.memory.reserve(*runtime_.backend, layout, divide_up(tokens, layout.chunk_tokens));
}

void SequenceState::note_refresh_blocks(std::size_t end) {
  const LayerState& layer = layers_[*refresh_.layer];
  std::vector<std::byte*>& blocks = refresh_.blocks;
  while (blocks.size() * block_tokens() < end) blocks.push_back(layer.host_blocks[blocks.size()]);
}

BuildRequest SequenceState::refresh_request() const {
  const TokenRange tokens = refresh_.under_way;
  BuildRequest request = index_request(*refresh_.layer, tokens);
  request.rows = {.blocks = refresh_.blocks.data(), .block_tokens = block_tokens()};
  request.fixed = refresh_.memory.fixed();
  request.index = refresh_.memory.view(runtime_.index_layout, refresh_.built.begin);
  request.index.token_count = tokens.begin - refresh_.built.begin;
  request.anew = true;
  return request;
}

Status SequenceState::continue_refresh() {
  const LayerIndex& index = layers_[*refresh_.layer].index;
  counters_.longest_refresh_slice = std::max(counters_.longest_refresh_slice, refresh_.slice_time);
  if (!refresh_.whole) return give_refresh_up();
  if (!*refresh_.whole) return work_for_a_slice();
  if (index.tokens.end < refresh_.under_way.end) return give_refresh_up();  // it was cut
  // A step waits for what is still lacking then: for a block of tokens, not for long, or for as few
  // as there will be, where as many come as are added.
  const bool adding = refresh_.under_way.begin >= refresh_.built.end;
  const bool gains = !adding || length_ - refresh_.begun_at < refresh_.under_way.size();
  const bool nearly_there = index.tokens.end - refresh_.under_way.end <= block_tokens();
  return nearly_there || !gains ? publish_refresh() : catch_up();
}

Status SequenceState::give_refresh_up() {
  // The index there is goes on; the next tokens that are due bring another try.
  layers_[*refresh_.layer].index.fresh_end = refresh_.built.end;
  refresh_.stop();
  return refresh_queue_->clear_error();
}

Status SequenceState::work_for_a_slice() {
  const auto work = [this, request = refresh_request()] {
    const TimePoint begin = request.clock->now();
    refresh_.whole = runtime_.policy->build_some(request, refresh_.progress,
                                                 begin + runtime_.options.refresh.slice);
    refresh_.slice_time = request.clock->now() - begin;
    return Result<std::size_t>(0);
  };
  TERRACE_ASSIGN(refresh_.slice, refresh_queue_->call(Phase::cluster, work));
  return {};
}

Status SequenceState::catch_up() {
  const LayerState& layer = layers_[*refresh_.layer];
  // A chunk of them at once: more come meanwhile, but fewer.
  const std::size_t begin = refresh_.under_way.end;
  const std::size_t chunk_end = begin + runtime_.index_layout.chunk_tokens;
  refresh_.take_on({begin, std::min(layer.index.tokens.end, chunk_end)}, length_);
  if (!reserve_refresh()) return give_refresh_up();
  note_refresh_blocks(refresh_.under_way.end);
  TERRACE_TRY(refresh_queue_->wait_for(layer.offloaded));
  if (takes_batches()) refresh_.batches.push_back(begin);
  return work_for_a_slice();
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
  std::swap(index.batches, refresh_.batches);
  index.stale = true;
  layer.members_stale = layer.clusters_renamed = true;
  index.tokens.end = refresh_.under_way.end;
  index.fresh_end = refresh_.built.end;
  index.trained = refresh_.built.size();
  const std::size_t refreshed = *refresh_.layer;
  refresh_.stop();
  ++counters_.refreshes;
  // The new index ends before the old one did: what it has not is coded now or, should that fail,
  // before anything else.
  index.lost_ends.insert(index.lost_ends.begin(), end);
  TERRACE_TRY(code_lost_tokens(refreshed));
  TERRACE_ASSIGN(const std::size_t bytes, upload_index(layer, index.tokens, /*with_fixed=*/true));
  index.stale = false;
  counters_.bytes.index += bytes;
  return {};
}

}  // namespace terrace
