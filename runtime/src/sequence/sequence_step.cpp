// One decode step: append, select, resolve, fetch, attend. Everything is enqueued; between
// begin_step and end_step the host waits for none of it.
#include <algorithm>
#include <array>
#include <cmath>

#include "../sequence_state.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

Status SequenceState::begin_step() {
  if (phase_ != SequencePhase::idle) {
    return fail(Errc::invalid_argument, "begin_step: the sequence is not idle");
  }
  if (length_ >= max_positions) {
    return fail(Errc::invalid_argument, "begin_step: the sequence has {} tokens, as many as it can",
                length_);
  }
  resolve_budget(length_ + 1);
  TERRACE_TRY(await_indexes());
  TERRACE_TRY(recovering(prepare_step()));
  TERRACE_TRY(reserve_step());
  next_layer_ = 0;
  compute_ = nullptr;
  gathers_ = false;
  phase_ = SequencePhase::step;
  return {};
}

Status SequenceState::prepare_step() {
  if (!indexes_ready_) {
    TERRACE_TRY(prepare_indexes());
    TERRACE_TRY(await_indexes());
  }
  const bool caches = cache_sharers_ != 0;
  const TimePoint begin = runtime_.backend->clock().now();
  if (caches) TERRACE_TRY(fit_cache());
  release_passed_blocks();
  if (caches) count_upkeep(begin);
  return {};
}

Status SequenceState::reserve_step() {
  const std::size_t blocks = layers_.front().places.size();
  const auto reserve = [&]() -> Status {
    TERRACE_TRY(reserve_positions(length_ + 1));
    TERRACE_TRY(own_block(length_ / block_tokens()));
    for (LayerState& layer : layers_) TERRACE_TRY(place_block(layer, length_ / block_tokens()));
    TERRACE_TRY(reserve_step_buffers(length_ + 1));
    return reserve_cache(length_ + 1);
  };
  if (const Status reserved = reclaiming_for(length_ + 1, reserve); !reserved) {
    trim_blocks(blocks);
    static_cast<void>(recovering(reserved));
    report_loss();
    return reserved;
  }
  indexes_ready_ = false;
  return {};
}

Status SequenceState::await_indexes() {
  Status first_failure;
  std::vector<std::size_t> failed;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    LayerIndex& index = layers_[layer].index;
    if (!index.building) continue;
    const Status built = await_build(layer);
    if (!built && built.error().code == Errc::not_ready) return built;
    if (!built) {
      if (failed.empty()) first_failure = built;
      failed.push_back(layer);
      continue;
    }
    index.building = false;
    layers_[layer].query_window = {};  // what a policy learns lies in the index's fixed part
    observe_build(layer);
  }
  cancel_builds_.store(false, std::memory_order_relaxed);
  if (failed.empty()) return {};
  TERRACE_TRY(build_again(failed));
  return tl::unexpected(first_failure.error().while_doing("building the index failed"));
}

Status SequenceState::build_again(std::span<const std::size_t> layers) {
  // The rows are all there. A failure takes what stands behind it on its queue with it.
  settle_queues();
  for (LayerState& each : layers_) each.index.stale = true;
  for (const std::size_t layer : layers) {
    layers_[layer].index.building = false;
    TERRACE_TRY(build_index(layer, layers_[layer].index.tokens));
  }
  return {};
}

Status SequenceState::await_build(std::size_t layer) {
  const Clock& clock = runtime_.backend->clock();
  const TimePoint begin = clock.now();
  // With planned iterations a build that is late stops after the iteration it is in.
  if (runtime_.plans_iterations()) cancel_builds_.store(true, std::memory_order_relaxed);
  if (layer + 1 == layers_.size()) hidden_until_[layer] = begin;
  const Status coded = wait(layers_[layer].index.coded, deadline());
  clustering_waited_ += clock.now() - begin;
  return coded ? layers_[layer].index.build_status : coded;
}

void SequenceState::observe_build(std::size_t layer) {
  const LayerIndex& index = layers_[layer].index;
  if (index.hidden_by.empty()) return;
  if (index.build_end > hidden_until_[layer]) ++late_layers_;
  // Behind the last layer comes whatever its user does, which says nothing of a layer's compute.
  if (layer == 0 || layer + 1 == layers_.size()) return;
  runtime_.observe_compute({.rows = index.tokens.size(), .prompt = index.hidden_by},
                           hidden_until_[layer] - hidden_until_[layer - 1]);
}

Status SequenceState::publish_arrivals(LayerState& layer, Queue& compute) {
  if (caches_clusters()) TERRACE_TRY(publish_clusters(layer, compute));
  if (!layer.arriving.empty()) {
    TERRACE_TRY(compute.wait_for(layer.refilled));
    for (const ArrivingBlock& arrival : layer.arriving) {
      // Else the slot that it has would be nobody's.
      TERRACE_ASSERT(layer.places[arrival.block] == BlockPlace::absent);
      layer.device_blocks.set(arrival.block, arrival.slot);
      layer.places[arrival.block] = BlockPlace::cached;
    }
    layer.arriving.clear();
  }
  TERRACE_TRY(layer.device_blocks.flush(compute));
  return {};
}

Result<Ticket> SequenceState::store_token(const LayerState& layer, const StepInput& input,
                                          Queue& compute) {
  const StoreRows store{.source = input.kv,
                        .tokens = {length_, length_ + 1},
                        .target = {layer.device_blocks.host_data(), block_tokens()},
                        .shape = runtime_.shape()};
  return runtime_.backend->ops().store_rows(compute, Phase::update, store);
}

std::span<LayerState> SequenceState::batch_ending_at(std::size_t layers_done) noexcept {
  const std::size_t rest = layers_done % layers_per_batch;
  if (rest != 0 && layers_done != layers_.size()) return {};
  const std::size_t count = rest != 0 ? rest : layers_per_batch;
  return std::span(layers_).subspan(layers_done - count, count);
}

std::span<LayerState> SequenceState::half_ending_at(std::size_t layers_done) noexcept {
  // Selections come in batches: no upkeep is held up by another half of one.
  const std::size_t batches = divide_up(layers_.size(), layers_per_batch);
  const std::size_t first = std::min(layers_.size(), divide_up(batches, 2) * layers_per_batch);
  if (layers_done == first) return std::span(layers_).first(first);
  if (layers_done == layers_.size()) return std::span(layers_).subspan(first);
  return {};
}

Status SequenceState::copy_to_host(std::span<LayerState> layers, Ticket ready) {
  if (keeps_everything() || layers.empty()) return {};
  TERRACE_TRY(offload_queue_->wait_for(ready));
  const std::size_t block = length_ / block_tokens();
  const std::size_t row_bytes = runtime_.shape().row_bytes();
  extents_.clear();
  for (const LayerState& layer : layers) {
    for (std::size_t head = 0; head < runtime_.shape().kv_heads; ++head) {
      const std::size_t at = (head * block_tokens() + length_ % block_tokens()) * row_bytes;
      extents_.push_back(
          {layer.host_blocks[block] + at, layer.device_blocks[block] + at, row_bytes});
    }
  }
  // Upkeep reads what was selected while attention runs.
  for (const LayerState& layer : layers) {
    if (!layer.selected) continue;
    extents_.push_back(
        {layer.selection_host.data(), layer.selection.data(), layer.selection.bytes()});
    counters_.bytes.index += layer.selection.bytes();
    ids_bytes_ += layer.selection.bytes();
  }
  TERRACE_ASSIGN(const Ticket offloaded, offload_queue_->copy(Phase::offload, extents_));
  for (LayerState& layer : layers) layer.offloaded = offloaded;
  return {};
}

bool SequenceState::attends_to_all(const LayerState& layer) const {
  if (!selects() || runtime_.options.when == RetrievalWhen::always) return false;
  const auto blocks = static_cast<std::ptrdiff_t>(length_ / block_tokens() + 1);
  return std::all_of(layer.places.begin(), layer.places.begin() + blocks,
                     [](BlockPlace place) { return place == BlockPlace::resident; });
}

bool SequenceState::selection_applies(const LayerState& layer) const {
  return selects() && split_.selected > 0 && !layer.index.tokens.empty() &&
         !candidates_of(layer).empty();
}

Result<IndexView> SequenceState::index_for_step(std::size_t layer, Queue& compute) {
  LayerIndex& index = layers_[layer].index;
  const IndexLayout& layout = runtime_.index_layout;
  IndexView view;
  if (index_streamed_) {
    IndexStage& stage = stages_[layer % 2];
    TERRACE_TRY(compute.wait_for(stage.streamed));
    view = stage.memory.view(layout, index.tokens.begin);
  } else {
    TERRACE_TRY(compute.wait_for(index.uploaded));
    // Tables of all layers grow at once: this one may have, and had nothing to upload since.
    TERRACE_TRY(index.device.table().flush(compute));
    view = index.device.view(layout, index.tokens.begin);
  }
  view.token_count = index.tokens.size();
  return view;
}

TokenRange SequenceState::candidates_of(const LayerState& layer) const noexcept {
  return {layer.sinks.end, std::min(layer.window.begin, layer.index.tokens.end)};
}

PseudoTarget SequenceState::pseudo_target(const SelectionBuffers& buffers) const noexcept {
  return {.rows = step_.pseudo_rows.as<const std::byte*>(),
          .bias = step_.pseudo_bias.as<float>(),
          .count = buffers.pseudo_counts,
          .stride = step_.pseudo_entries};
}

SelectRequest SequenceState::select_request(std::size_t layer_number, const StepInput& input,
                                            const IndexView& index) const noexcept {
  const LayerState& layer = layers_[layer_number];
  // Tokens that wait in the window to be indexed are paid for by fewer selected ones.
  const std::size_t borrowed = window_at(length_).begin - layer.window.begin;
  const TokenBudget& budget = runtime_.options.budget;
  return {.shape = runtime_.shape(),
          .layer = static_cast<LayerId>(layer_number),
          .query = input.query,
          .layer_input = input.layer_input,
          .candidates = candidates_of(layer),
          .count = {.mean = split_.selected - borrowed},
          .mass = budget.kind == TokenBudget::Kind::mass ? budget.value : 0,
          .index = index,
          .resident = table(layer.device_blocks),
          .sinks = layer.sinks,
          .window = layer.window,
          .scratch = step_.select_scratch.as<float>()};
}

Selection SequenceState::selection_target(const LayerState& layer) const noexcept {
  const RetrievalTraits& traits = runtime_.policy->traits();
  const SelectionBuffers buffers = selection_buffers(layer.selection);
  return {.capacity = list_rows(),
          .ids = buffers.ids,
          .id_count = buffers.counts,
          .logit_bias = step_.logit_bias.as<float>(),
          .pseudo = traits.gives_pseudo_entries ? pseudo_target(buffers) : PseudoTarget{}};
}

Result<Ticket> SequenceState::select_rows(std::size_t layer_number, const StepInput& input,
                                          Queue& compute) {
  LayerState& layer = layers_[layer_number];
  const Ops& ops = runtime_.backend->ops();
  TERRACE_ASSIGN(const IndexView index, index_for_step(layer_number, compute));
  SelectRequest request = select_request(layer_number, input, index);
  request.out = selection_target(layer);
  TERRACE_ASSIGN(const Ticket selected, runtime_.policy->select({&request, 1}, compute, ops));
  if (index_streamed_) stages_[layer_number % 2].read = selected;

  const ResolveRows resolve = resolve_request(layer);
  TERRACE_ASSIGN(const Ticket resolved, ops.resolve_rows(compute, Phase::fetch, resolve));
  TERRACE_TRY(ops.fetch_rows(compute, Phase::fetch,
                             {.shape = runtime_.shape(),
                              .missed = step_.missed.as<MissedRow>(),
                              .missed_count = resolve.missed_count,
                              .source = table(layer.host_blocks)}));
  return resolved;
}

ResolveRows SequenceState::resolve_request(const LayerState& layer) const noexcept {
  const SelectionBuffers buffers = selection_buffers(layer.selection);
  return {.shape = runtime_.shape(),
          .scope = runtime_.policy->traits().lists,
          .ids = buffers.ids,
          .id_count = buffers.counts,
          .id_stride = list_rows(),
          .resident = table(layer.device_blocks),
          .cached = layer.slots.rows(),
          .staging = caches_clusters() ? layer.staging.data() : step_.staging.data(),
          .rows = step_.rows.as<std::byte*>(),
          .missed = step_.missed.as<MissedRow>(),
          .missed_count = buffers.missed_count,
          .seen = step_.seen.as<std::uint32_t>(),
          .seen_epoch = step_.seen_epoch.as<std::uint32_t>(),
          .seen_stride = step_.positions};
}

Status SequenceState::take_turn(std::string_view call, SequencePhase phase, LayerId id,
                                const Queue& compute) const {
  if (phase_ != phase) {
    return fail(Errc::invalid_argument, "{}: no {} is under way", call,
                phase == SequencePhase::step ? "step" : "prefill");
  }
  if (index(id) != next_layer_ || next_layer_ == layers_.size()) {
    return fail(Errc::invalid_argument, "{}: layer {} is not the next one", call, index(id));
  }
  // Layers share buffers, in the order of one queue.
  if (compute_ != nullptr && compute_ != &compute) {
    return fail(Errc::invalid_argument, "{}: the layers before were enqueued on another queue",
                call);
  }
  return {};
}

Status SequenceState::note_attention() {
  if (!gathers_ || next_layer_ == 0) return {};
  TERRACE_ASSIGN(layers_[next_layer_ - 1].attended, compute_->record());
  computed_ = layers_[next_layer_ - 1].attended;
  return {};
}

void SequenceState::note_compute() {
  if (cache_sharers_ == 0) return;
  // For a figure alone: what fails here fails again where it matters.
  if (const Result<Ticket> all = compute_->record()) computed_ = *all;
}

void SequenceState::count_upkeep(TimePoint begin) {
  const Duration taken = runtime_.backend->clock().now() - begin;
  counters_.upkeep += taken;
  if (poll(computed_).value_or(true)) counters_.upkeep_waited += taken;
}

Result<KvView> SequenceState::prepare(std::string_view call, LayerId id, const StepInput& input,
                                      Queue& compute) {
  TERRACE_TRY(take_turn(call, SequencePhase::step, id, compute));
  if (runtime_.policy->traits().needs_layer_input && input.layer_input == nullptr) {
    return fail(Errc::invalid_argument, "{}: policy {} needs the layer's input", call,
                runtime_.policy->traits().name);
  }
  compute_ = &compute;
  LayerState& layer = layer_state(id);
  // Whoever computes attention, by now that of the layer before is enqueued.
  TERRACE_TRY(note_attention());
  if (index_streamed_ && index(id) + 1 < layers_.size()) TERRACE_TRY(stream_index(index(id) + 1));
  TERRACE_TRY(publish_arrivals(layer, compute));
  TERRACE_ASSIGN(Ticket ready, store_token(layer, input, compute));
  layer.sinks = sinks_at(length_);
  layer.window = window_of(index(id), length_);
  if (attends_to_all(layer)) layer.window.begin = layer.sinks.end;
  layer.selected = selection_applies(layer);
  if (layer.selected) {
    TERRACE_ASSIGN(ready, select_rows(index(id), input, compute));
  }
  TERRACE_TRY(copy_to_host(batch_ending_at(index(id) + 1), ready));
  const SelectionBuffers buffers = selection_buffers(layer.selection);
  ++next_layer_;
  return KvView{.resident = table(layer.device_blocks),
                .sinks = layer.sinks,
                .window = layer.window,
                .scope = runtime_.policy->traits().lists,
                .selected = layer.selected ? step_.rows.as<std::byte*>() : nullptr,
                .selected_count = layer.selected ? buffers.counts : nullptr,
                .selected_stride = list_rows()};
}

Result<KvView> SequenceState::gather(LayerId id, const StepInput& input, Queue& compute) {
  const RetrievalTraits& traits = runtime_.policy->traits();
  if (traits.gives_logit_bias || traits.gives_pseudo_entries) {
    return fail(Errc::unsupported,
                "gather: policy {} needs an attention kernel with a logit bias; use attend",
                traits.name);
  }
  gathers_ = true;
  return prepare("gather", id, input, compute);
}

Status SequenceState::attend(LayerId id, const StepInput& input, float* output, Queue& compute) {
  TERRACE_ASSIGN(const KvView view, prepare("attend", id, input, compute));
  PseudoEntries pseudo;
  if (view.selected != nullptr && runtime_.policy->traits().gives_pseudo_entries) {
    const PseudoTarget target = pseudo_target(selection_buffers(layer_state(id).selection));
    pseudo = {
        .rows = target.rows, .bias = target.bias, .count = target.count, .stride = target.stride};
  }
  const DecodeAttention attention{
      .shape = runtime_.shape(),
      .query = input.query,
      .output = output,
      .resident = view.resident,
      .sinks = view.sinks,
      .window = view.window,
      .scope = view.scope,
      .selected = view.selected,
      .selected_count = view.selected_count,
      .selected_stride = view.selected_stride,
      .selected_bias = view.selected == nullptr ? nullptr : step_.logit_bias.as<float>(),
      .pseudo = pseudo,
      .scale = 1.0F / std::sqrt(static_cast<float>(runtime_.shape().head_dim)),
      .scratch = step_.attention_scratch.as<float>()};
  TERRACE_ASSIGN(const Ticket attended,
                 runtime_.backend->ops().decode_attention(compute, Phase::attend, attention));
  layer_state(id).attended = computed_ = attended;
  // Estimates are rows of the index.
  if (index_streamed_ && pseudo.rows != nullptr) stages_[index(id) % 2].read = attended;
  return {};
}

Status SequenceState::end_step() {
  if (phase_ != SequencePhase::step || next_layer_ != layers_.size()) {
    return fail(Errc::invalid_argument, "end_step: {} of {} layers were attended", next_layer_,
                layers_.size());
  }
  const auto finish = [&]() -> Status {
    TERRACE_TRY(note_attention());
    note_compute();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      TERRACE_TRY(wait(layers_[i].offloaded, deadline()));
      TERRACE_TRY(upkeep_cache(i));
      TERRACE_TRY(send_slots(half_ending_at(i + 1)));
    }
    return wait(layers_.back().attended, deadline());
  };
  if (const Status finished = finish(); !finished) {
    const Status abandoned = abandon_step();
    return abandoned ? finished : abandoned;
  }
  // All done: the embedder's queue need not outlive the step.
  for (LayerState& layer : layers_) layer.attended = {};
  for (IndexStage& stage : stages_) stage.read = {};
  computed_ = {};
  compute_ = nullptr;
  ++length_;
  ++counters_.steps;
  if (!keeps_everything()) {
    counters_.bytes.offload += runtime_.shape().layers * runtime_.shape().token_bytes();
  }
  phase_ = SequencePhase::idle;
  // The step itself is done. What fails here is tried again, and reported, when the next one
  // begins.
  static_cast<void>(prepare_indexes());
  report_step_end();
  return {};
}

Status SequenceState::recovering(const Status& done) {
  if (done) return done;
  // What failed between calls must not fail them for good. Memory that was refused failed nothing,
  // but work that found none did.
  const Errc code = done.error().code;
  const bool failed = code == Errc::out_of_memory ? has_failed_work() : code != Errc::not_ready;
  if (failed && settle_queues()) recover();
  return done;
}

bool SequenceState::has_failed_work() const {
  return std::ranges::any_of(layers_, [](const LayerState& layer) {
    return std::ranges::any_of(
        std::array{layer.offloaded, layer.refilled, layer.index.coded, layer.index.uploaded},
        [](const Ticket& ticket) { return !poll(ticket).has_value(); });
  });
}

void SequenceState::recover() {
  // Any copy of a failed queue may be missing: only what lies on the host, and the resident rows
  // below length(), can be relied on.
  report_loss();
  forget_uploads();
  for (LayerState& layer : layers_) {
    withdraw_arrivals(layer);
    drop_clusters(layer);
    for (std::size_t block = 0; block < layer.places.size(); ++block) {
      if (layer.places[block] == BlockPlace::cached) release_block(layer, block);
    }
    layer.selected = false;
    layer.index.stale = true;
  }
  indexes_ready_ = false;
}

Status SequenceState::abandon_step() {
  if (phase_ != SequencePhase::step) {
    return fail(Errc::invalid_argument, "abandon_step: no step is under way");
  }
  computed_ = {};
  const bool at_rest = settle_queues();
  phase_ = at_rest ? SequencePhase::idle : SequencePhase::lost;
  if (at_rest) {
    recover();
    return {};
  }
  return fail(Errc::not_ready, "a queue did not come to rest; the sequence is lost");
}

}  // namespace terrace
