#include "participant.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor_checks.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

Status Participant::check_turn(LayerId id, const StepInput& input, Queue& compute) const {
  TERRACE_TRY(progress_.require(SequencePhase::step));
  const std::size_t layers = plan_.shape().layers;
  if (next_layer_ == layers) {
    return fail(Errc::invalid_argument, "layer {}: all {} layers are done", index(id), layers);
  }
  if (index(id) != next_layer_) {
    return fail(Errc::invalid_argument, "layer {} is not the next one; layer {} is", index(id),
                next_layer_);
  }
  TERRACE_TRY(check_compute(work_.backend, compute));
  // Layers share buffers, in the order of one queue.
  if (work_.compute != nullptr && work_.compute != &compute) {
    return fail(Errc::invalid_argument, "layer {} is for queue {}, and the layers before it for {}",
                next_layer_, compute.name(), work_.compute->name());
  }
  TERRACE_TRY(check_kv(plan_.shape(), input.kv, tokens_));
  if (progress_.in_prompt()) {
    TERRACE_TRY(check_hints(plan_, input.hints, tokens_));
  }
  TERRACE_TRY(parts_.retention.inputs.check(*parts_.layers[index(id)], input.hints, tokens_));
  if (plan_.traits().needs_speculated_query && !exact_ && input.speculated_query == nullptr) {
    return fail(Errc::invalid_argument, "policy {} needs a speculated query (speculated_query)",
                plan_.traits().name);
  }
  return {};
}

Status Participant::open_layer(LayerId id, const StepInput& input, Queue& compute) {
  work_.compute = &compute;
  layer_ = parts_.layers[index(id)].get();
  selected_rows_ = HostRows(layer_->rows, {});
  lacks_rows_ = false;
  input_ = input;
  // The previous layer's attention is enqueued by now, by Terrace or by the engine.
  TERRACE_TRY(note_attention());
  if (!exact_ && layer_->number + 1 < parts_.layers.size()) {
    TERRACE_TRY(parts_.indexes.room.device().prefetch(*parts_.layers[layer_->number + 1],
                                                      progress_.length() + tokens_ - 1));
  }
  TERRACE_TRY(layer_->cache->publish(compute));
  TERRACE_TRY(layer_->rows.flush(compute));
  if (progress_.in_prompt()) {
    TERRACE_TRY(copy_hints(plan_, layer_->index.piece_hints, input.hints, compute));
    const PromptIndexer& prompt = parts_.indexes.prompt;
    if (prompt.is_under_way()) TERRACE_TRY(prompt.take_hints(*layer_, compute));
  }
  TERRACE_TRY(compute.wait_for(layer_->retention.uploaded));
  TERRACE_TRY(parts_.retention.inputs.keep_step(
      *layer_, {progress_.length(), progress_.length() + tokens_}, input, compute));
  layer_->go_to_token(0);
  if (exact_) layer_->open_all_tokens(progress_.length() + tokens_);
  return {};
}

Status Participant::open_token(std::size_t number) {
  token_ = number;
  layer_->go_to_token(number);
  const std::size_t position = progress_.length() + number;
  if (number > 0) {
    const std::size_t last = progress_.length() + tokens_ - 1;
    TERRACE_TRY(parts_.indexes.upkeep.follow_draft(*layer_, position, last));
  }
  layer_->open_token(position);
  if (number > 0) return {};
  return parts_.mass.keep_query(*layer_, input_.query, *work_.compute);
}

void Participant::list_stores(std::vector<StoreRows>& stores) const {
  layer_->rows.list_device_stores(input_.kv, new_tokens(), stores);
}

Result<SelectRequest> Participant::select(Queue& compute) {
  TERRACE_ASSIGN(const IndexView view, parts_.indexes.room.device().view(*layer_, compute));
  const AttendedToken& token = layer_->token();
  const TokenBudget& budget = plan_.options.budget;
  const std::size_t position = progress_.length() + token_;
  SelectRequest request{
      .shape = plan_.shape(),
      .layer = layer_->id(),
      .query = input_.query + token_ * input_.query_stride,
      .speculated_query = input_.speculated_query == nullptr
                              ? nullptr
                              : input_.speculated_query + token_ * input_.speculated_query_stride,
      .candidates = layer_->candidates(),
      .count = {.mean = progress_.split_at(position).selected - layer_->borrowed_at(position)},
      .mass = budget.kind == TokenBudget::Kind::mass ? budget.value : 0,
      .held = layer_->attends_to_entries() ? layer_->retention.entries.held() : HeldPositions{},
      .index = view,
      .resident = layer_->rows.device_table(),
      .sinks = token.sinks,
      .window = token.window,
      .scratch = parts_.workspace.select_scratch(),
      .out = parts_.workspace.selection(*layer_)};
  if (plan_.traits().estimates_rest) {
    rests_ = plan_.policy->rests({request, parts_.workspace.means()});
    rests_.counted = token.selection.on_host().pseudo_counts;
  }
  request.count = plan_.policy->rows_within(request);
  return request;
}

void Participant::note_selected(Ticket selected) noexcept {
  parts_.indexes.room.device().note_read(*layer_, selected);
}

Status Participant::read_selection(Ticket copied) {
  TERRACE_TRY(work_.await(WaitReason::rows, copied));
  work_.counters.bytes.index += selection_to_host().bytes;
  const SelectionBuffers lists = layer_->token().selection.on_host();
  std::vector<std::uint8_t> is_wanted(layer_->rows.blocks());
  for (std::size_t list = 0; list < plan_.lists(); ++list) {
    const std::uint32_t* const ids = lists.ids + list * progress_.list_rows();
    for (std::size_t i = 0; i < lists.counts[list]; ++i) {
      is_wanted[ids[i] / plan_.block_tokens()] = 1;
    }
  }
  selected_blocks_.clear();
  for (std::uint32_t block = 0; block < is_wanted.size(); ++block) {
    if (is_wanted[block] != 0 && layer_->rows.absent(block)) selected_blocks_.push_back(block);
  }
  return {};
}

void Participant::list_arrivals(std::vector<LayerRows::Arrival>& arrivals) {
  selected_rows_ = HostRows(layer_->rows, selected_blocks_);
  layer_->rows.list_away(selected_blocks_, arrivals);
}

Status Participant::note_arrivals(std::span<const LayerRows::Arrival> arrivals, TimePoint begin) {
  Status first;
  lacks_rows_ = false;
  bool waited = false;
  for (const LayerRows::Arrival& one : arrivals) {
    if (one.rows != &layer_->rows) continue;
    waited = true;
    if (one.was_read) work_.counters.store.read += plan_.block_bytes();
    if (!one.has_come()) {
      lacks_rows_ = true;
      if (first) first = one.status;
    }
  }
  if (waited) work_.count_wait(WaitReason::rows, begin);
  if (lacks_rows_) let_rows_go();
  return first;
}

void Participant::let_rows_go() noexcept { selected_rows_ = HostRows(layer_->rows, {}); }

void Participant::note_fetched(Ticket fetched) noexcept {
  layer_->tickets().fetched = fetched;
  let_rows_go();
}

Status Participant::note_stored(Ticket stored, Queue& compute) {
  TERRACE_TRY(store_on_host(stored));
  PromptIndexer& prompt = parts_.indexes.prompt;
  return prompt.is_under_way() ? prompt.start(*layer_, compute) : Status{};
}

Status Participant::store_on_host(Ticket ready) {
  rows_stored_ = {};
  stores_.clear();
  layer_->rows.list_host_stores(input_.kv, new_tokens(), sends_rows_at_once(), stores_);
  if (stores_.empty()) return {};
  Queue& offload = work_.lanes.offload();
  TERRACE_TRY(offload.wait_for(ready));
  TERRACE_ASSIGN(rows_stored_, work_.backend.ops().store_rows(offload, Phase::offload, stores_));
  layer_->tickets().offloaded = rows_stored_;
  return {};
}

Status Participant::let_tensors_go(Queue& compute) {
  return compute.wait_for(std::exchange(rows_stored_, {}));
}

void Participant::close_layer(std::vector<CopyExtent>& leaving) {
  ++next_layer_;
  leaving_ = plan_.keeps_everything() ? LayerSpan() : batch_ending_at(next_layer_);
  const std::size_t before = leaving.size();
  if (!sends_rows_at_once()) {
    for (const auto& layer : leaving_) layer->rows.list_host_copies(new_tokens(), leaving);
  }
  // Upkeep reads what was selected while attention runs.
  for (const auto& layer : leaving_) list_selections(*layer, leaving);
  if (leaving.size() == before) leaving_ = {};
}

Status Participant::order_copies(Queue& offload) {
  for (const auto& layer : leaving_) TERRACE_TRY(offload.wait_for(layer->tickets().offloaded));
  return {};
}

void Participant::note_leaving(Ticket copied) noexcept {
  for (const auto& layer : leaving_) layer->tickets().offloaded = copied;
}

LayerSpan Participant::batch_ending_at(std::size_t layers_done) const noexcept {
  const std::size_t rest = layers_done % layers_per_batch;
  if (rest != 0 && layers_done != parts_.layers.size()) return {};
  const std::size_t count = rest != 0 ? rest : layers_per_batch;
  return LayerSpan(parts_.layers).subspan(layers_done - count, count);
}

LayerSpan Participant::half_ending_at(std::size_t layers_done) const noexcept {
  // Selections come in batches: no upkeep is held up by another half of one.
  const LayerSpan layers = parts_.layers;
  const std::size_t batches = divide_up(layers.size(), layers_per_batch);
  const std::size_t first = std::min(layers.size(), divide_up(batches, 2) * layers_per_batch);
  if (layers_done == first) return layers.first(first);
  if (layers_done == layers.size()) return layers.subspan(first);
  return {};
}

void Participant::list_selections(Layer& layer, std::vector<CopyExtent>& leaving) {
  for (const AttendedToken& token : layer.tokens().first(single_tokens())) {
    if (!token.selected) continue;
    leaving.push_back(to_host(token));
    work_.counters.bytes.index += leaving.back().bytes;
    work_.journal.add_ids(leaving.back().bytes);
  }
}

Result<Ticket> Participant::attend_exactly(TileStream& tiles, const StepOutput& output,
                                           Ticket stored, Queue& compute) {
  const ExactQueries queries{.query = input_.query,
                             .query_stride = input_.query_stride,
                             .output = output.data,
                             .output_stride = output.stride,
                             .first = progress_.length(),
                             .tokens = tokens_};
  TERRACE_TRY(compute.wait_for(stored));
  if (!parts_.retention.inputs.wants_weights(*layer_)) {
    return tiles.attend(work_, *layer_, queries, compute);
  }
  AttentionSums& sums = parts_.retention.weights;
  const std::size_t end = progress_.length() + tokens_;
  TERRACE_ASSIGN(const AttentionWeights weights, sums.next_sums(*layer_, end, compute));
  TERRACE_ASSIGN(const Ticket weighed, tiles.attend(work_, *layer_, queries, compute, &weights));
  TERRACE_TRY(sums.send(*layer_, 0, {.sinks = {0, end}}, weighed));
  return weighed;
}

Status Participant::check_gathers(const RuntimePlan& plan) {
  if (plan.retention != nullptr) {
    return fail(Errc::unsupported,
                "retention.policy {} needs an attention kernel for its entries; use attend",
                plan.retention->traits().name);
  }
  const RetrievalTraits& traits = plan.policy->traits();
  if (!traits.gives_logit_bias && !traits.gives_pseudo_entries) return {};
  return fail(Errc::unsupported,
              "policy {} needs an attention kernel with a logit bias; use attend", traits.name);
}

Status Participant::check_appends(const RuntimePlan& plan) {
  if (plan.retention == nullptr) return {};
  return fail(Errc::unsupported, "retention.policy {} goes by queries; use attend",
              plan.retention->traits().name);
}

Status Participant::check_append() const {
  TERRACE_TRY(progress_.require(SequencePhase::step));
  if (exact_ && prompt_) return {};
  return fail(Errc::invalid_argument,
              "append: tokens that decode, or of a prompt that selects, have to attend");
}

Status Participant::check_rows_are_here() const {
  TERRACE_TRY(progress_.require(SequencePhase::step));
  const std::size_t blocks = divide_up(progress_.length() + tokens_, plan_.block_tokens());
  const auto here = [&](const auto& layer) { return layer->rows.all_on_device(blocks); };
  if (!exact_ || std::ranges::all_of(parts_.layers, here)) return {};
  return fail(
      Errc::not_ready,
      "the index is still being built, or a prompt is being given: the step attends to rows "
      "that lie on the host alone; use attend, or call await_indexes() before begin_step()");
}

KvView Participant::view() const noexcept {
  const AttendedToken& token = layer_->token();
  const bool selected = token.selected;
  return {.resident = layer_->rows.device_table(),
          .sinks = token.sinks,
          .window = token.window,
          .scope = plan_.traits().lists,
          .selected = selected ? parts_.workspace.rows() : nullptr,
          .selected_count = selected ? token.selection.on_device().counts : nullptr,
          .selected_stride = progress_.list_rows()};
}

Result<DecodeAttention> Participant::attention(const StepOutput& output, Queue& compute) {
  const KvView rows = view();
  AttentionWeights weights;
  if (parts_.retention.inputs.wants_weights(*layer_)) {
    TERRACE_ASSIGN(weights, parts_.retention.weights.next(compute));
  }
  return DecodeAttention{
      .shape = plan_.shape(),
      .query = input_.query + token_ * input_.query_stride,
      .output = output.data + token_ * output.stride,
      .resident = rows.resident,
      .sinks = rows.sinks,
      .window = rows.window,
      .scope = rows.scope,
      .selected = rows.selected,
      .selected_count = rows.selected_count,
      .selected_stride = rows.selected_stride,
      .selected_bias = rows.selected == nullptr ? nullptr : parts_.workspace.logit_bias(),
      .pseudo = layer_->attends_to_entries() ? layer_->retention.entries.view()
                                             : parts_.workspace.pseudo(*layer_),
      .rests = rows.selected == nullptr ? GroupRests{} : rests_,
      .scale = plan_.shape().logit_scale(),
      .scratch = parts_.workspace.attention_scratch(),
      .weights = weights,
      .weights_scratch = weights.sums == nullptr ? nullptr : parts_.retention.weights.scratch()};
}

Status Participant::send_weights(Ticket attended) {
  if (!parts_.retention.inputs.wants_weights(*layer_)) return {};
  const AttendedToken& token = layer_->token();
  return parts_.retention.weights.send(
      *layer_, token_, {token.sinks, token.window, &layer_->retention.entries.now().heads},
      attended);
}

void Participant::note_attended(Ticket attended) noexcept {
  layer_->tickets().attended = work_.computed = attended;
  // Estimates are rows of the index.
  const bool reads_index = layer_->token().selected && plan_.traits().gives_pseudo_entries;
  if (reads_index) parts_.indexes.room.device().note_read(*layer_, attended);
}

Status Participant::note_attention() {
  if (!gathers_ || next_layer_ == 0) return {};
  Layer& before = *parts_.layers[next_layer_ - 1];
  // A piece of its own, for record() means what Terrace has enqueued: the engine may have put its
  // attention on a stream of its own, where Terrace knows nothing of it.
  TERRACE_ASSIGN(before.tickets().attended,
                 work_.compute->launch(Phase::attend, [] { return std::size_t{0}; }));
  work_.computed = before.tickets().attended;
  return {};
}

}  // namespace terrace
