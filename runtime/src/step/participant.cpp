#include "participant.hpp"

#include <algorithm>
#include <cmath>

#include "sequence/sequence_state.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

std::mutex& Participant::mutex() const noexcept { return context_.owner.mutex; }

bool Participant::brings_prompt() const noexcept {
  const bool unannounced = tokens_ > 1 && !context_.has_decoded && !context_.prompt_given;
  return context_.in_prompt() || unannounced;
}

Status Participant::begin(std::size_t tokens) {
  if (context_.phase != SequencePhase::idle) {
    return fail(Errc::invalid_argument, "begin_step: the sequence is not idle");
  }
  if (tokens == 0) return fail(Errc::invalid_argument, "begin_step: a step of no token");
  if (tokens > max_positions - context_.length) {
    return fail(Errc::invalid_argument, "begin_step: {} tokens and {} more are more than {}",
                context_.length, tokens, max_positions);
  }
  tokens_ = tokens;
  token_ = 0;
  prompt_ = brings_prompt();
  // A budget that is a share follows a prompt that nobody announced.
  if (prompt_ && !context_.prompt_comes) context_.forget_budget();
  context_.resolve_budget(std::max(context_.length + tokens, context_.prompt.end));
  TERRACE_ASSIGN(bool indexed, has_indexes());
  Result<bool> prepared = prepare(indexed);
  TERRACE_TRY(parts_.recovering(prepared.map([](bool) {})));
  choose_attention(*prepared);
  TERRACE_TRY(reserve());
  if (is_draft()) parts_.indexes.upkeep.begin_draft();
  next_layer_ = 0;
  context_.compute = nullptr;
  gathers_ = false;
  context_.phase = SequencePhase::step;
  return {};
}

Result<bool> Participant::has_indexes() {
  const bool waits = context_.options().until_ready == UntilReady::wait;
  if (!waits && !parts_.indexes.builder.ready()) return false;
  TERRACE_TRY(parts_.await_indexes());
  return true;
}

Result<bool> Participant::prepare(bool indexed) {
  if (indexed && context_.prompt_waits()) {
    TERRACE_TRY(index_prompt());
    TERRACE_ASSIGN(indexed, has_indexes());
  }
  // In the middle of a draft no memory can be taken from others.
  if (indexed && tokens_ > 1 && !prompt_) {
    TERRACE_TRY(context_.reclaiming(
        [&] { return parts_.indexes.room.reserve(context_.length + tokens_); }));
  }
  if (indexed && !parts_.indexes.room.ready) {
    TERRACE_TRY(parts_.indexes.prepare());
    TERRACE_ASSIGN(indexed, has_indexes());
  }
  const bool caches = parts_.cache.joined();
  const TimePoint begin = context_.clock().now();
  if (caches) TERRACE_TRY(parts_.cache.fit());
  parts_.rows.release_passed();
  if (caches) context_.count_upkeep(begin);
  return indexed;
}

void Participant::choose_attention(bool indexed) noexcept {
  if (prompt_ && context_.length == context_.prompt.begin) {
    const auto has_index = [&](const auto& layer) {
      return context_.is_dense(layer->number) || !layer->index.coverage.tokens.empty();
    };
    context_.prompt_selects = indexed && context_.selects() && context_.split.selected > 0 &&
                              context_.options().prompts == PromptAttention::retrieved &&
                              std::ranges::all_of(parts_.layers, has_index);
  }
  exact_ = !indexed || (prompt_ && !context_.prompt_selects);
}

Status Participant::reserve() {
  const std::size_t blocks = parts_.rows.blocks();
  const std::size_t length = context_.length + tokens_;
  const std::size_t block = context_.length / context_.block_tokens();
  for (const auto& layer : parts_.layers) {
    layer->reserve_tokens(std::max<std::size_t>(1, single_tokens()));
  }
  const auto reserve_all = [&]() -> Status {
    TERRACE_TRY(parts_.rows.reserve_positions(length));
    const std::size_t end = divide_up(length, context_.block_tokens());
    for (std::size_t i = block; i < end; ++i) TERRACE_TRY(parts_.rows.own_block(i));
    TERRACE_TRY(parts_.rows.place_blocks(block, end));
    TERRACE_TRY(parts_.workspace.reserve(length, parts_.layers));
    if (exact_) TERRACE_TRY(parts_.workspace.reserve_state(tokens_));
    return parts_.cache.reserve(length);
  };
  if (const Status reserved = parts_.rows.reclaiming_for(length, reserve_all); !reserved) {
    parts_.rows.trim(blocks);
    static_cast<void>(parts_.recovering(reserved));
    context_.journal.note_loss();
    return reserved;
  }
  parts_.indexes.room.ready = false;
  // For tokens behind the first one there may be something to select where there was nothing.
  if (single_tokens() < 2) return {};
  return parts_.indexes.room.device().prefetch(*parts_.layers.front(), length - 1);
}

Status Participant::check_turn(std::string_view call, LayerId id, const StepInput& input,
                               const Queue& compute) const {
  if (context_.phase != SequencePhase::step) {
    return fail(Errc::invalid_argument, "{}: no step is under way", call);
  }
  if (index(id) != next_layer_ || all_layers_done()) {
    return fail(Errc::invalid_argument, "{}: layer {} is not the next one", call, index(id));
  }
  // Layers share buffers, in the order of one queue.
  if (context_.compute != nullptr && context_.compute != &compute) {
    return fail(Errc::invalid_argument, "{}: the layers before were enqueued on another queue",
                call);
  }
  if (context_.in_prompt()) {
    TERRACE_TRY(check_hints(call, context_, input.hints, tokens_));
  }
  if (context_.traits().needs_layer_input && !exact_ && input.layer_input == nullptr) {
    return fail(Errc::invalid_argument, "{}: policy {} needs the layer's input", call,
                context_.traits().name);
  }
  return {};
}

Status Participant::open_layer(LayerId id, const StepInput& input, Queue& compute) {
  context_.compute = &compute;
  layer_ = parts_.layers[index(id)].get();
  input_ = input;
  // Whoever computes attention, by now that of the layer before is enqueued.
  TERRACE_TRY(note_attention());
  if (layer_->number + 1 < parts_.layers.size()) {
    TERRACE_TRY(parts_.indexes.room.device().prefetch(*parts_.layers[layer_->number + 1],
                                                      context_.length + tokens_ - 1));
  }
  TERRACE_TRY(layer_->cache->publish(compute));
  TERRACE_TRY(layer_->rows.flush(compute));
  if (context_.in_prompt()) {
    TERRACE_TRY(copy_hints(context_, layer_->index.piece_hints, input.hints, compute));
  }
  layer_->go_to_token(0);
  if (exact_) layer_->open_all_tokens(context_.length + tokens_);
  return {};
}

Status Participant::open_token(std::size_t number) {
  token_ = number;
  layer_->go_to_token(number);
  const std::size_t position = context_.length + number;
  if (number > 0) TERRACE_TRY(parts_.indexes.upkeep.follow_draft(*layer_, position));
  layer_->open_token(position);
  return {};
}

StoreRows Participant::store() const noexcept {
  return {.source = input_.kv,
          .tokens = {context_.length, context_.length + tokens_},
          .target = layer_->rows.device_blocks(),
          .shape = context_.shape()};
}

Result<SelectRequest> Participant::select(Queue& compute) {
  TERRACE_ASSIGN(const IndexView view, parts_.indexes.room.device().view(*layer_, compute));
  const AttendedToken& token = layer_->token();
  const TokenBudget& budget = context_.options().budget;
  return SelectRequest{
      .shape = context_.shape(),
      .layer = layer_->id(),
      .query = input_.query + token_ * input_.query_stride,
      .layer_input = input_.layer_input == nullptr
                         ? nullptr
                         : input_.layer_input + token_ * input_.layer_input_stride,
      .candidates = layer_->candidates(),
      .count = {.mean = context_.split.selected - layer_->borrowed_at(context_.length + token_)},
      .mass = budget.kind == TokenBudget::Kind::mass ? budget.value : 0,
      .index = view,
      .resident = layer_->rows.device_table(),
      .sinks = token.sinks,
      .window = token.window,
      .scratch = parts_.workspace.select_scratch(),
      .out = parts_.workspace.selection(*layer_)};
}

void Participant::note_selected(Ticket selected) noexcept {
  parts_.indexes.room.device().note_read(*layer_, selected);
}

Status Participant::note_stored(Ticket stored) {
  if (!sends_rows_at_once()) return {};
  Queue& offload = context_.lanes.offload();
  TERRACE_TRY(offload.wait_for(stored));
  extents_.clear();
  list_new_rows(*layer_);
  TERRACE_ASSIGN(layer_->tickets().offloaded, offload.copy(Phase::offload, extents_));
  return {};
}

Status Participant::close_layer(Ticket ready) {
  ++next_layer_;
  return copy_to_host(batch_ending_at(next_layer_), ready);
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

Status Participant::copy_to_host(LayerSpan layers, Ticket ready) {
  if (context_.keeps_everything() || layers.empty()) return {};
  Queue& offload = context_.lanes.offload();
  TERRACE_TRY(offload.wait_for(ready));
  extents_.clear();
  if (!sends_rows_at_once()) {
    for (const auto& layer : layers) list_new_rows(*layer);
  }
  // Upkeep reads what was selected while attention runs.
  for (const auto& layer : layers) list_selections(*layer);
  if (extents_.empty()) return {};
  TERRACE_ASSIGN(const Ticket offloaded, offload.copy(Phase::offload, extents_));
  for (const auto& layer : layers) layer->tickets().offloaded = offloaded;
  return {};
}

void Participant::list_selections(Layer& layer) {
  for (const AttendedToken& token : layer.tokens().first(single_tokens())) {
    if (!token.selected) continue;
    extents_.push_back(token.selection.to_host());
    context_.counters.bytes.index += extents_.back().bytes;
    context_.journal.add_ids(extents_.back().bytes);
  }
}

void Participant::list_new_rows(const Layer& layer) {
  const KvShape& shape = context_.shape();
  const std::size_t block_tokens = context_.block_tokens();
  const std::size_t end = context_.length + tokens_;
  for (std::size_t position = context_.length; position < end;) {
    const std::size_t block = position / block_tokens;
    const std::size_t run_end = std::min(end, (block + 1) * block_tokens);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      const std::size_t at = layer.rows.row_offset(head, position);
      extents_.push_back({layer.rows.on_host(block) + at, layer.rows.on_device(block) + at,
                          (run_end - position) * shape.row_bytes()});
    }
    position = run_end;
  }
}

Result<Ticket> Participant::attend_exactly(TileStream& tiles, const StepOutput& output,
                                           Ticket stored, Queue& compute) {
  return tiles.attend(context_, *layer_,
                      {.query = input_.query,
                       .query_stride = input_.query_stride,
                       .output = output.data,
                       .output_stride = output.stride,
                       .first = context_.length,
                       .tokens = tokens_,
                       .state = parts_.workspace.state()},
                      stored, compute);
}

KvView Participant::view() const noexcept {
  const AttendedToken& token = layer_->token();
  const bool selected = token.selected;
  return {.resident = layer_->rows.device_table(),
          .sinks = token.sinks,
          .window = token.window,
          .scope = context_.traits().lists,
          .selected = selected ? parts_.workspace.rows() : nullptr,
          .selected_count = selected ? token.selection.on_device().counts : nullptr,
          .selected_stride = context_.list_rows()};
}

DecodeAttention Participant::attention(const StepOutput& output) const noexcept {
  const KvView rows = view();
  return {.shape = context_.shape(),
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
          .pseudo = parts_.workspace.pseudo(*layer_),
          .scale = 1.0F / std::sqrt(static_cast<float>(context_.shape().head_dim)),
          .scratch = parts_.workspace.attention_scratch()};
}

void Participant::note_attended(Ticket attended) noexcept {
  layer_->tickets().attended = context_.computed = attended;
  // Estimates are rows of the index.
  const bool reads_index = layer_->token().selected && context_.traits().gives_pseudo_entries;
  if (reads_index) parts_.indexes.room.device().note_read(*layer_, attended);
}

Status Participant::note_attention() {
  if (!gathers_ || next_layer_ == 0) return {};
  Layer& before = *parts_.layers[next_layer_ - 1];
  TERRACE_ASSIGN(before.tickets().attended, context_.compute->record());
  context_.computed = before.tickets().attended;
  return {};
}

Status Participant::keep_up() {
  TERRACE_TRY(note_attention());
  // For a figure alone: a queue that fails here fails again where it matters.
  if (parts_.cache.joined()) {
    if (const Result<Ticket> all = context_.compute->record()) context_.computed = *all;
  }
  for (std::size_t i = 0; i < parts_.layers.size(); ++i) {
    Layer& layer = *parts_.layers[i];
    TERRACE_TRY(context_.await(WaitReason::rows, layer.tickets().offloaded));
    TERRACE_TRY(keep_up(layer));
    TERRACE_TRY(parts_.cache.send_changes(half_ending_at(i + 1)));
  }
  return {};
}

Status Participant::keep_up(Layer& layer) {
  context_.counters.lists += context_.lists() * tokens_;
  if (exact_) {
    // Token t of many attends to all rows up to its own.
    const std::size_t most = layer.token().window.size();
    context_.counters.attended += context_.lists() * (tokens_ * most - tokens_ * (tokens_ - 1) / 2);
  }
  for (std::size_t number = 0; number < single_tokens(); ++number) {
    layer.go_to_token(number);
    TERRACE_TRY(keep_up_token(layer, number));
  }
  return {};
}

Status Participant::keep_up_token(Layer& layer, std::size_t number) {
  const AttendedToken& token = layer.token();
  context_.counters.attended += context_.lists() * (token.sinks.size() + token.window.size());
  if (!token.selected) return {};
  Status kept;
  if (number + 1 == tokens_) {
    kept = layer.cache->take_step();
  } else {
    layer.cache->count_token();
  }
  // What was decided is counted, also where the copying fails.
  if (context_.journal.listens()) parts_.report.report(context_, layer, context_.length + number);
  return kept;
}

Status Participant::conclude(std::size_t accepted) {
  TERRACE_TRY(context_.await(WaitReason::compute, parts_.layers.back()->tickets().attended));
  // All done: the embedder's queue need not outlive the step.
  for (const auto& layer : parts_.layers) layer->tickets().attended = {};
  parts_.indexes.room.device().end_step();
  context_.computed = {};
  context_.compute = nullptr;
  TERRACE_TRY(accept(accepted));
  ++context_.counters.steps;
  if (exact_ && !prompt_) ++context_.counters.exact_steps;
  const KvShape& shape = context_.shape();
  const std::size_t offloaded =
      context_.keeps_everything() ? 0 : tokens_ * shape.layers * shape.token_bytes();
  context_.counters.bytes.offload += offloaded;
  context_.phase = SequencePhase::idle;
  if (!prompt_) context_.has_decoded = true;
  // The step itself is done. A failure here comes again, and is reported, when the next one begins.
  static_cast<void>(prepare_next());
  context_.journal.note_step_end(offloaded, context_.counters.bytes.index);
  return {};
}

Status Participant::accept(std::size_t tokens) {
  const std::size_t before = context_.length;
  context_.length += tokens;
  for (const auto& layer : parts_.layers) {
    if (tokens > 0 && !exact_) layer->go_to_token(tokens - 1);
    if (prompt_) {
      add_hints(context_, layer->index.hints, layer->index.piece_hints, {tokens, tokens_});
    }
  }
  if (tokens == tokens_) return {};
  Status rejected = is_draft() ? reject_draft(before + tokens_) : Status{};
  if (!rejected) {
    context_.length = before;
    return rejected;
  }
  trim_rows();
  return {};
}

void Participant::trim_rows() {
  parts_.rows.trim(divide_up(context_.length, context_.block_tokens()));
}

Status Participant::reject_draft(std::size_t end) {
  if (parts_.indexes.builder.building()) TERRACE_TRY(parts_.await_indexes());
  TERRACE_TRY(parts_.indexes.upkeep.reject_draft());
  if (context_.window_at(end - 1).begin <= context_.length) return {};
  // Rejected rows had left the window: copies of them must not outlive them.
  for (const auto& layer : parts_.layers) {
    TERRACE_TRY(context_.await(WaitReason::refill, layer->tickets().refilled));
    layer->cache->drop_unsettled();
    layer->drop_cached_from(context_.length / context_.block_tokens());
  }
  return {};
}

Status Participant::prepare_next() {
  const bool waits = context_.options().until_ready == UntilReady::wait;
  // What is added to an index that is being built would wait for it.
  if (!waits && !parts_.indexes.builder.ready()) return {};
  // A prompt that came whole, or in pieces, is indexed at once.
  if (context_.prompt_waits()) static_cast<void>(index_prompt());
  if (!waits && !parts_.indexes.builder.ready()) return {};
  return parts_.indexes.prepare();
}

Status Participant::end_prompt() {
  const bool waits = context_.options().until_ready == UntilReady::wait;
  // Else the next step does it, once it can.
  return waits || parts_.indexes.builder.ready() ? index_prompt() : Status{};
}

Status Participant::index_prompt() {
  context_.prompt_comes = false;
  if (context_.layout().empty() || context_.split.selected == 0) return {};
  const TokenRange tokens{context_.sinks_at(context_.length).end, context_.length};
  if (tokens.empty()) return {};
  for (const auto& layer : parts_.layers) {
    // No build is under way that could read them.
    const AcceptedTokens all{context_.prompt.size(), context_.prompt.size()};
    layer->index.build.hints.query_window.clear();
    add_hints(context_, layer->index.build.hints, layer->index.hints, all);
    TERRACE_TRY(parts_.indexes.upkeep.add_prompt(*layer, tokens, /*hidden_by=*/{}));
  }
  return {};
}

Status Participant::abandon() {
  context_.computed = {};
  const bool at_rest = parts_.come_to_rest();
  context_.phase = at_rest ? SequencePhase::idle : SequencePhase::lost;
  if (at_rest) {
    parts_.recover();
    for (const auto& layer : parts_.layers) layer->index.piece_hints.clear();
    // Where it fails, the next step codes again, and reports.
    if (is_draft()) static_cast<void>(parts_.indexes.upkeep.reject_draft());
    trim_rows();
    return {};
  }
  return fail(Errc::not_ready, "a queue did not come to rest; the sequence is lost");
}

}  // namespace terrace
