// What happens beside the step: building and extending indexes.
#include <algorithm>

#include "../sequence_state.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

BuildRequest SequenceState::index_request(std::size_t layer_number, TokenRange tokens) const {
  const LayerState& layer = layers_[layer_number];
  const LayerIndex& index = layer.index;
  const std::size_t first = index.tokens.empty() ? tokens.begin : index.tokens.begin;
  BuildRequest request{.shape = runtime_.shape(),
                       .layer = static_cast<LayerId>(layer_number),
                       .rows = table(layer.host_blocks),
                       .tokens = tokens,
                       .fixed = index.host.fixed(),
                       .index = index.host.view(runtime_.index_layout, first),
                       .iterations = runtime_.planned_iterations(
                           layer_number, {.rows = tokens.size(), .prompt = tokens}, {}),
                       .seed = runtime_.options.seed,
                       .clock = &runtime_.backend->clock()};
  request.index.token_count = tokens.begin - first;
  return request;
}

Status SequenceState::build_index(std::size_t layer_number, TokenRange tokens) {
  if (tokens.empty() || is_dense(layer_number)) return {};
  LayerState& layer = layers_[layer_number];
  LayerIndex& index = layer.index;
  TERRACE_TRY(reclaiming([&] { return reserve_index(tokens.end); }));
  TERRACE_TRY(note_arrival(layer));
  TERRACE_TRY(cluster_queue_->wait_for(index.uploaded));  // it may still read the old index
  layer.members_stale = layer.clusters_renamed = true;
  const bool anew = index.trained > 0;
  index.tokens = {};
  index.lost_ends.clear();
  const bool hidden = phase_ == SequencePhase::prefill;
  index.hidden_by = hidden ? TokenRange{length_, prefill_end_} : TokenRange{};
  BuildRequest request = index_request(layer_number, tokens);
  request.anew = anew;
  request.cancelled = runtime_.plans_iterations() ? &cancel_builds_ : nullptr;
  TERRACE_ASSIGN(index.coded,
                 cluster_queue_->call(Phase::cluster, [this, request]() -> Result<std::size_t> {
                   run_build(request);
                   return 0;
                 }));
  index.building = true;
  if (index.hidden_by.empty()) ++counters_.builds;
  index.tokens = tokens;
  index.batches.assign(1, tokens.begin);
  index.trained = tokens.size();
  index.fresh_end = tokens.end;
  return upload_index(layer, tokens, /*with_fixed=*/true).map([](std::size_t) {});
}

Status SequenceState::note_arrival(LayerState& layer) {
  TERRACE_TRY(offload_queue_->wait_for(layer.offloaded));
  TERRACE_ASSIGN(const Ticket arrived,
                 offload_queue_->call(Phase::offload, [this, &layer]() -> Result<std::size_t> {
                   layer.index.rows_arrived = runtime_.backend->clock().now();
                   return 0;
                 }));
  return cluster_queue_->wait_for(arrived);
}

void SequenceState::run_build(BuildRequest request) {
  const Clock& clock = runtime_.backend->clock();
  const std::size_t layer = terrace::index(request.layer);
  LayerState& state = layers_[layer];
  LayerIndex& index = state.index;
  // Compute wrote them before the rows left for the host.
  request.hints = {state.pre_rope_keys, state.query_window, state.attention_scores};
  index.build_begin = clock.now();
  // Planned here, where it is known what earlier layers took and how late this one begins.
  const std::size_t rows = request.tokens.size();
  const TokenRange prompt = index.hidden_by.empty() ? request.tokens : index.hidden_by;
  request.iterations = runtime_.planned_iterations(layer, {.rows = rows, .prompt = prompt},
                                                   index.build_begin - index.rows_arrived);
  const auto report = runtime_.build(request);
  index.build_end = clock.now();
  // The queue goes on: a failed index loses no row.
  index.build_status = report.map([](const BuildReport&) {});
  if (!report) return;
  index.report = *report;
  runtime_.observe_clustering(rows, report->mean_iterations, index.build_end - index.build_begin);
}

Result<Ticket> SequenceState::add_to_index(const BuildRequest& request) {
  // A prompt's tokens are worth waking the other threads for, a step's are not.
  const bool wakes_others = phase_ == SequencePhase::prefill;
  return cluster_queue_->call(Phase::update,
                              [this, request, wakes_others]() -> Result<std::size_t> {
                                Serial alone;
                                TERRACE_TRY(wakes_others ? runtime_.build(request)
                                                         : runtime_.policy->build(request, alone));
                                return 0;
                              });
}

Status SequenceState::extend_index(std::size_t layer_number, std::size_t end) {
  LayerState& layer = layers_[layer_number];
  LayerIndex& index = layer.index;
  const TokenRange tokens{index.tokens.end, end};
  if (tokens.empty()) return {};
  // Should it fail, an extension before it that is still under way fails with it.
  const Result<bool> coded = poll(index.coded);
  if (coded && *coded) index.coded_before = tokens.begin;
  TERRACE_TRY(reclaiming([&] { return reserve_index(end); }));
  TERRACE_TRY(cluster_queue_->wait_for(layer.offloaded));
  TERRACE_TRY(cluster_queue_->wait_for(index.uploaded));
  TERRACE_ASSIGN(index.coded, add_to_index(index_request(layer_number, tokens)));
  index.tokens.end = end;
  if (takes_batches()) index.batches.push_back(tokens.begin);
  layer.members_stale = true;
  const Result<std::size_t> bytes = stage_upload(layer, tokens, /*with_fixed=*/false);
  if (!bytes) {
    index.stale = true;
    return tl::unexpected(bytes.error());
  }
  if (phase_ != SequencePhase::prefill) counters_.bytes.index += *bytes;
  return {};
}

Status SequenceState::prepare_indexes() {
  // First, while nothing is being coded: an index changes hands between two extensions.
  TERRACE_TRY(refresh_indexes());
  TERRACE_TRY(code_layers([&](std::size_t layer) { return code_passed_tokens(layer); }));
  if (index_streamed_) {
    // A prompt that found no room for a larger index has left none.
    TERRACE_TRY(reclaiming([&] { return reserve_index(indexed_end()); }));
    TERRACE_TRY(stream_index(0));
  }
  indexes_ready_ = true;
  return {};
}

Status SequenceState::code_layers(FunctionRef<Status(std::size_t)> code) {
  Status coded;
  for (std::size_t layer = 0; coded && layer < layers_.size(); ++layer) coded = code(layer);
  // Of all layers at once, also of those before one that failed.
  TERRACE_TRY(send_uploads());
  return coded;
}

Status SequenceState::code_lost_tokens() {
  return code_layers([&](std::size_t layer) { return code_lost_tokens(layer); });
}

Status SequenceState::code_lost_tokens(std::size_t layer) {
  std::vector<std::size_t>& ends = layers_[layer].index.lost_ends;
  // In the batches they were in: of others other clusters would be made.
  while (!ends.empty()) {
    TERRACE_TRY(extend_index(layer, ends.front()));
    ends.erase(ends.begin());
  }
  return {};
}

Status SequenceState::code_passed_tokens(std::size_t layer_number) {
  if (runtime_.index_layout.empty() || split_.selected == 0 || is_dense(layer_number)) return {};
  LayerIndex& index = layers_[layer_number].index;
  if (index.stale && !index.tokens.empty() && !index.building) {
    TERRACE_TRY(upload_index(layers_[layer_number], index.tokens, /*with_fixed=*/true));
    index.stale = false;
  }
  TERRACE_TRY(code_lost_tokens(layer_number));
  const TokenRange middle{sinks_at(length_).end, window_at(length_).begin};
  if (takes_batches() && !index.tokens.empty()) {
    return batch_is_due(layer_number) ? extend_index(layer_number, length_) : Status{};
  }
  if (middle.empty() || middle.end <= index.tokens.end) return {};
  if (index.tokens.empty() || is_outgrown(index, middle.size())) {
    return build_index(layer_number, {middle.begin, length_});
  }
  return extend_index(layer_number, middle.end);
}

bool SequenceState::is_outgrown(const LayerIndex& index, std::size_t tokens) const noexcept {
  return index.trained < runtime_.policy->traits().training_tokens && tokens >= 2 * index.trained;
}

std::size_t SequenceState::batch_tokens() const noexcept {
  const RetrievalTraits& traits = runtime_.policy->traits();
  // As many tokens as the window holds anyway cost no budget while they wait. Beyond these they
  // take the place of selected ones: of half of them at most, half a batch of delay included.
  const std::size_t batch =
      std::clamp(split_.window, traits.batch_tokens_min, traits.batch_tokens_max);
  const std::size_t most = (2 * split_.window + split_.selected) / 3;
  return std::max<std::size_t>(1, std::min(batch, most));
}

bool SequenceState::batch_is_due(std::size_t layer) const noexcept {
  const std::size_t batch = batch_tokens();
  const std::size_t waiting = length_ - std::min(length_, layers_[layer].index.tokens.end);
  // Layers take turns: one batch of one layer is too little work to hold a step up.
  const bool on_turn = (length_ + layer * batch / layers_.size()) % batch == 0;
  // After a cut more may wait than half the selected tokens could make room for.
  const std::size_t most = std::min(2 * batch, split_.window + split_.selected / 2);
  return waiting >= std::max<std::size_t>(1, most) || (on_turn && 2 * waiting >= batch);
}

Result<std::size_t> SequenceState::stage_upload(LayerState& layer, TokenRange tokens,
                                                bool with_fixed) {
  if (index_streamed_) return 0;
  LayerIndex& index = layer.index;
  const IndexLayout& layout = runtime_.index_layout;
  TERRACE_TRY(index.device.table().flush(*index_queue_));
  const std::size_t first = index.tokens.begin;
  const TokenRange chunks{(tokens.begin - first) / layout.chunk_tokens,
                          divide_up(tokens.end - first, layout.chunk_tokens)};
  std::size_t bytes = append_chunk_copies(layout, index.host, index.device, chunks, uploads_);
  if (with_fixed && layout.fixed_bytes > 0) {
    uploads_.push_back({index.device.fixed(), index.host.fixed(), layout.fixed_bytes});
    bytes += layout.fixed_bytes;
  }
  uploading_.push_back(&layer);
  return bytes;
}

Status SequenceState::send_uploads() {
  const auto send = [&]() -> Result<Ticket> {
    for (const LayerState* layer : uploading_) {
      TERRACE_TRY(index_queue_->wait_for(layer->index.coded));
      TERRACE_TRY(index_queue_->wait_for(layer->attended));
    }
    return index_queue_->copy(Phase::index, uploads_);
  };
  if (uploading_.empty()) return {};
  const Result<Ticket> sent = send();
  for (LayerState* layer : uploading_) {
    if (sent) {
      layer->index.uploaded = *sent;
    } else {
      layer->index.stale = true;
    }
  }
  forget_uploads();
  return sent.map([](Ticket) {});
}

Result<std::size_t> SequenceState::upload_index(LayerState& layer, TokenRange tokens,
                                                bool with_fixed) {
  TERRACE_ASSIGN(const std::size_t bytes, stage_upload(layer, tokens, with_fixed));
  TERRACE_TRY(send_uploads());
  return bytes;
}

Status SequenceState::stream_index(std::size_t layer_number) {
  LayerIndex& index = layers_[layer_number].index;
  if (index.tokens.empty() || window_at(length_).begin <= sinks_at(length_).end) return {};
  IndexStage& stage = stages_[layer_number % 2];
  const IndexLayout& layout = runtime_.index_layout;
  TERRACE_TRY(index_queue_->wait_for(stage.read));
  TERRACE_TRY(index_queue_->wait_for(index.coded));
  TERRACE_TRY(stage.memory.table().flush(*index_queue_));
  extents_.clear();
  const std::size_t coded = index.tokens.size();
  std::size_t bytes = append_chunk_copies(layout, index.host, stage.memory,
                                          {0, divide_up(coded, layout.chunk_tokens)}, extents_);
  if (layout.fixed_bytes > 0) {
    extents_.push_back({stage.memory.fixed(), index.host.fixed(), layout.fixed_bytes});
    bytes += layout.fixed_bytes;
  }
  TERRACE_ASSIGN(stage.streamed, index_queue_->copy(Phase::index, extents_));
  index.uploaded = stage.streamed;
  counters_.bytes.index += bytes;
  return {};
}

}  // namespace terrace
