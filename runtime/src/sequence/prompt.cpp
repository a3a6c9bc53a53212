#include "prompt.hpp"

#include <algorithm>

#include "step/tensor_checks.hpp"

namespace terrace {

Status Prompt::begin(std::size_t tokens) {
  TERRACE_TRY(context_.require(SequencePhase::idle));
  if (tokens == 0) return fail(Errc::invalid_argument, "a prompt of no token");
  if (context_.in_prompt()) {
    return fail(Errc::invalid_argument,
                "a prompt comes in steps, of which {} tokens lack; end it with begin_prompt(0)",
                context_.prompt.end - context_.length);
  }
  TERRACE_TRY(context_.check_length(tokens));
  // Rows and hints of an earlier prompt are still read to build from.
  TERRACE_TRY(parts_.await_indexes());
  TERRACE_TRY(parts_.recovering(parts_.indexes.upkeep.begin_prefill()));
  const std::size_t total = context_.length + tokens;
  context_.resolve_budget(total);
  blocks_before_ = parts_.rows.blocks();
  streamed_before_ = parts_.indexes.room.streams();
  const Status reserved = parts_.rows.reclaiming_for(total + 1, [&] { return reserve(total); });
  if (!reserved) {
    parts_.rows.trim(blocks_before_);
    static_cast<void>(parts_.recovering(reserved));
    if (reserved.error().code == Errc::out_of_memory) give_back();
    return reserved;
  }
  for (const auto& layer : parts_.layers) layer->index.build.hints.query_window.clear();
  end_ = total;
  parts_.place_prompt(end_);
  parts_.cache.reserve_blocks(end_);
  next_layer_ = 0;
  appended_ = context_.length;
  context_.compute = nullptr;
  parts_.indexes.builder.start_prompt();
  parts_.indexes.room.ready = false;
  context_.phase = SequencePhase::prefill;
  return {};
}

Status Prompt::reserve(std::size_t total) {
  // With the first token behind it: a new region of host memory takes longer than a step.
  TERRACE_TRY(parts_.rows.reserve_positions(total + 1));
  const std::size_t block = context_.length / context_.block_tokens();
  TERRACE_TRY(parts_.rows.own_blocks(block, block + 1));
  TERRACE_TRY(parts_.workspace.reserve(total, parts_.layers));
  TERRACE_TRY(parts_.retention.reserve());
  TERRACE_TRY(parts_.rows.place_needed(block, total));
  TERRACE_TRY(parts_.indexes.room.reserve(total));
  return parts_.cache.reserve(total + 1);
}

void Prompt::give_back() {
  parts_.indexes.room.trim();
  if (context_.length == 0) {
    forget_first_prompt();
  } else if (parts_.indexes.room.streams() && !streamed_before_) {
    make_indexes_resident();
  }
}

void Prompt::forget_first_prompt() {
  parts_.give_up_device_memory();
  parts_.indexes.room.start_over();
  context_.forget_budget();
}

void Prompt::make_indexes_resident() {
  if (!parts_.come_to_rest()) return;
  parts_.indexes.room.start_over();
  if (parts_.indexes.restore()) return;
  for (const auto& layer : parts_.layers) parts_.indexes.room.device().mark_stale(*layer);
}

Status Prompt::check_turn(LayerId id, Queue& compute) const {
  TERRACE_TRY(context_.require(SequencePhase::prefill));
  return context_.check_layer(id, next_layer_, compute);
}

Status Prompt::store_on_device(Layer& layer, const PromptPiece& piece, Queue& compute) {
  stores_.clear();
  layer.rows.list_stores(piece.kv, piece.tokens, Tier::device, stores_);
  if (stores_.empty()) return {};
  return context_.backend().ops().store_rows(compute, Phase::update, stores_).map([](Ticket) {});
}

Result<Ticket> Prompt::store_on_host(Layer& layer, const PromptPiece& piece, Ticket ready) {
  TERRACE_TRY(context_.lanes.offload().wait_for(ready));
  const StoreRows store{.source = piece.kv,
                        .tokens = piece.tokens,
                        .target = layer.rows.host_table(),
                        .shape = context_.shape(),
                        .crosses_link = true};
  TERRACE_ASSIGN(layer.tickets().offloaded, context_.backend().ops().store_rows(
                                                context_.lanes.offload(), Phase::offload, store));
  context_.counters.bytes.offload += piece.tokens.size() * context_.shape().token_bytes();
  return layer.tickets().offloaded;
}

Result<Ticket> Prompt::append(LayerId id, const PromptPiece& piece, Queue& compute) {
  TERRACE_TRY(check_turn(id, compute));
  if (piece.tokens.begin != appended_ || piece.tokens.end > end_ || piece.tokens.empty()) {
    return fail(Errc::invalid_argument,
                "positions [{}, {}) do not follow {}, or go beyond the announced {}",
                piece.tokens.begin, piece.tokens.end, appended_, end_);
  }
  TERRACE_TRY(check_kv(context_.shape(), piece.kv, piece.tokens.size()));
  TERRACE_TRY(check_hints(context_, piece.hints, piece.tokens.size()));
  Layer& layer = *parts_.layers[index(id)];
  TERRACE_TRY(parts_.retention.inputs.check_piece(layer, piece, end_));
  context_.compute = &compute;
  TERRACE_TRY(keep_hints(context_, layer.index.build.hints, piece, compute));
  TERRACE_TRY(parts_.retention.inputs.keep_piece(layer, piece, end_, compute));
  TERRACE_TRY(layer.rows.flush(compute));
  TERRACE_TRY(store_on_device(layer, piece, compute));
  TERRACE_ASSIGN(Ticket stored, compute.record());
  if (!context_.keeps_everything()) {
    TERRACE_ASSIGN(stored, store_on_host(layer, piece, stored));
  }
  appended_ = piece.tokens.end;
  return stored;
}

Status Prompt::finish(LayerId id, Queue& compute) {
  TERRACE_TRY(check_turn(id, compute));
  if (appended_ != end_) {
    return fail(Errc::invalid_argument, "layer {} has not been appended whole", index(id));
  }
  Layer& layer = *parts_.layers[index(id)];
  SequenceIndexes& indexes = parts_.indexes;
  // Work that came before on the compute queue hides the clustering of the layer before.
  if (layer.number > 0) {
    TERRACE_TRY(indexes.builder.note_compute(*parts_.layers[layer.number - 1], compute));
  }
  TERRACE_ASSIGN(layer.tickets().attended, compute.record());
  if (!context_.layout().empty() && context_.list_rows() > 0) {
    const TokenRange tokens{context_.sinks_at(end_).end, end_};
    TERRACE_TRY(indexes.upkeep.add_prompt(layer, tokens, {context_.length, end_}));
  }
  ++next_layer_;
  appended_ = context_.length;
  return {};
}

Status Prompt::end() {
  TERRACE_TRY(context_.require(SequencePhase::prefill));
  if (next_layer_ != parts_.layers.size()) {
    return fail(Errc::invalid_argument, "{} of {} layers are finished", next_layer_,
                parts_.layers.size());
  }
  for (const auto& layer : parts_.layers) {
    Status stored = context_.await(WaitReason::rows, layer->tickets().offloaded);
    if (stored) stored = context_.await(WaitReason::compute, layer->tickets().attended);
    if (!stored) {
      parts_.come_to_rest();
      context_.phase = SequencePhase::lost;
      return tl::unexpected(stored.error().while_doing("prefill failed, the sequence is lost"));
    }
  }
  for (const auto& layer : parts_.layers) {
    layer->tickets().attended = {};
    layer->rows.first_window_block = 0;
  }
  parts_.indexes.upkeep.end_prefill();
  context_.compute = nullptr;
  context_.length = end_;
  context_.is_behind_prompt = true;
  context_.prompt_given = true;
  context_.phase = SequencePhase::idle;
  // The next step tries again, and reports.
  static_cast<void>(parts_.retention.start_if_due());
  return {};
}

Status Prompt::abandon() {
  TERRACE_TRY(context_.require(SequencePhase::prefill));
  parts_.indexes.builder.cancel();
  if (!parts_.come_to_rest()) {
    context_.phase = SequencePhase::lost;
    return fail(Errc::not_ready, "a queue did not come to rest; the sequence is lost");
  }
  context_.phase = SequencePhase::idle;
  parts_.recover();
  parts_.indexes.builder.forget();
  parts_.indexes.upkeep.abandon_prefill();
  parts_.rows.trim(blocks_before_);
  parts_.workspace.reset();
  give_back();
  context_.runtime.trim_pools();
  return context_.keeps_everything() || context_.length == 0 ? Status{} : parts_.load_window();
}

}  // namespace terrace
