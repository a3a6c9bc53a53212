// Prefill: rows go to the host behind the compute that follows, sinks and window stay on the
// device, and each layer's index is built on the host while the next layers compute.
#include <algorithm>

#include "../sequence_state.hpp"
#include "terrace/runtime/selection_observer.hpp"

namespace terrace {
namespace {

/// Adds the elements behind those already kept, of which only the last `limit` stay.
void keep_last(std::vector<float>& kept, std::span<const float> more, std::size_t limit) {
  kept.insert(kept.end(), more.begin(), more.end());
  if (kept.size() > limit)
    kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(limit));
}

}  // namespace

void SequenceState::forget_first_prompt() {
  // It decided on the budget, and took for it what a shorter one may need.
  give_up_device_memory();
  index_streamed_ = false;
  budget_resolved_ = false;
  budget_tokens_ = 0;
  split_ = {};
}

void SequenceState::resolve_budget(std::size_t context) {
  if (budget_resolved_) return;
  policies::BudgetTerms terms = runtime_.options.budget_terms(context);
  if (keeps_everything()) terms.budget_tokens = context;
  budget_tokens_ = terms.budget_tokens;
  split_ = policies::split_budget(terms, runtime_.policy->traits());
  budget_resolved_ = true;
}

Status SequenceState::begin_prefill(std::size_t tokens) {
  if (phase_ != SequencePhase::idle) {
    return fail(Errc::invalid_argument, "begin_prefill: the sequence is not idle");
  }
  if (tokens == 0) return fail(Errc::invalid_argument, "begin_prefill: a prompt of 0 tokens");
  if (tokens > max_positions - length_) {
    return fail(Errc::invalid_argument, "begin_prefill: {} tokens and {} more are more than {}",
                length_, tokens, max_positions);
  }
  // What an earlier prompt left behind is still read to build from.
  TERRACE_TRY(await_indexes());
  TERRACE_TRY(recovering(code_lost_tokens()));
  const std::size_t total = length_ + tokens;
  resolve_budget(total);
  const std::size_t blocks = layers_.front().places.size();
  const bool streamed = index_streamed_;
  const auto reserve = [&]() -> Status {
    // With the first token behind it: a new region of host memory takes longer than a step.
    TERRACE_TRY(reserve_positions(total + 1));
    TERRACE_TRY(own_block(length_ / block_tokens()));
    TERRACE_TRY(reserve_step_buffers(total));
    TERRACE_TRY(place_needed_blocks(total));
    TERRACE_TRY(reserve_index(total));
    return reserve_cache(total + 1);
  };
  if (const Status reserved = reclaiming_for(total + 1, reserve); !reserved) {
    trim_blocks(blocks);
    static_cast<void>(recovering(reserved));
    if (reserved.error().code != Errc::out_of_memory) return reserved;
    trim_indexes();
    if (length_ == 0) {
      forget_first_prompt();
    } else if (index_streamed_ && !streamed) {
      make_indexes_resident();
    }
    return reserved;
  }
  if (runtime_.options.placement == Placement::resident_first) place_spare_blocks(total);
  for (LayerState& layer : layers_) layer.query_window.clear();
  prefill_end_ = total;
  report_prompt();
  place_cache_seeds();
  reserve_cluster_blocks(prefill_end_);
  next_layer_ = 0;
  appended_ = length_;
  compute_ = nullptr;
  hidden_until_.assign(layers_.size(), TimePoint::max());
  indexes_ready_ = false;
  phase_ = SequencePhase::prefill;
  return {};
}

void SequenceState::report_prompt() const {
  if (runtime_.options.observer == nullptr) return;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    runtime_.options.observer->on_prompt({.sequence = id_,
                                          .layer = static_cast<LayerId>(i),
                                          .tokens = {length_, prefill_end_},
                                          .window_begin = window_at(prefill_end_).begin,
                                          .placed_begin = window_of(i, prefill_end_).begin});
  }
}

Status SequenceState::check_hints(const PromptPiece& piece) const {
  const RetrievalTraits& traits = runtime_.policy->traits();
  const KvShape& shape = runtime_.shape();
  const std::size_t rows = piece.tokens.size() * shape.kv_heads;
  if (traits.needs_pre_rope_keys && piece.hints.pre_rope_keys.size() != rows * shape.head_dim) {
    return fail(Errc::invalid_argument,
                "append: policy {} needs the keys before RoPE, {} numbers; the piece has {}",
                traits.name, rows * shape.head_dim, piece.hints.pre_rope_keys.size());
  }
  if (traits.needs_attention_scores && piece.hints.attention_scores.size() != rows) {
    return fail(Errc::invalid_argument,
                "append: policy {} needs attention scores, {} numbers; the piece has {}",
                traits.name, rows, piece.hints.attention_scores.size());
  }
  return {};
}

Status SequenceState::keep_hints(LayerState& layer, const PromptHints& hints, Queue& compute) {
  const RetrievalTraits& traits = runtime_.policy->traits();
  const bool wanted =
      traits.needs_pre_rope_keys || traits.query_window_tokens > 0 || traits.needs_attention_scores;
  if (!wanted) return {};
  // What is enqueued before produces the hints, as it does the rows.
  const auto keep = [this, &layer, hints]() -> Result<std::size_t> {
    const RetrievalTraits& asked = runtime_.policy->traits();
    const KvShape& shape = runtime_.shape();
    if (asked.needs_pre_rope_keys) {
      layer.pre_rope_keys.insert(layer.pre_rope_keys.end(), hints.pre_rope_keys.begin(),
                                 hints.pre_rope_keys.end());
    }
    keep_last(layer.query_window, hints.query_window,
              asked.query_window_tokens * shape.query_heads * shape.head_dim);
    if (asked.needs_attention_scores) {
      layer.attention_scores.assign(hints.attention_scores.begin(), hints.attention_scores.end());
    }
    return 0;
  };
  return compute.call(Phase::update, keep).map([](Ticket) {});
}

Status SequenceState::store_on_device(LayerState& layer, const PromptPiece& piece, Queue& compute) {
  TERRACE_TRY(layer.device_blocks.flush(compute));
  const std::size_t size = block_tokens();
  std::size_t position = piece.tokens.begin;
  while (position < piece.tokens.end) {
    // The longest run of tokens whose blocks are all here, or all not.
    const bool here = layer.places[position / size] == BlockPlace::resident;
    std::size_t end = position;
    while (end < piece.tokens.end && (layer.places[end / size] == BlockPlace::resident) == here) {
      end = std::min((end / size + 1) * size, piece.tokens.end);
    }
    if (here) {
      StoreRows store{.source = piece.kv,
                      .tokens = {position, end},
                      .target = {layer.device_blocks.host_data(), size},
                      .shape = runtime_.shape()};
      const std::size_t skipped = (position - piece.tokens.begin) * piece.kv.token_stride;
      store.source.keys += skipped;
      store.source.values += skipped;
      TERRACE_TRY(runtime_.backend->ops().store_rows(compute, Phase::update, store));
    }
    position = end;
  }
  return {};
}

Result<Ticket> SequenceState::append(LayerId id, const PromptPiece& piece, Queue& compute) {
  TERRACE_TRY(take_turn("append", SequencePhase::prefill, id, compute));
  if (piece.tokens.begin != appended_ || piece.tokens.end > prefill_end_ || piece.tokens.empty()) {
    return fail(Errc::invalid_argument,
                "append: positions [{}, {}) do not follow {}, or go beyond the announced {}",
                piece.tokens.begin, piece.tokens.end, appended_, prefill_end_);
  }
  TERRACE_TRY(check_hints(piece));
  compute_ = &compute;
  LayerState& layer = layer_state(id);
  TERRACE_TRY(keep_hints(layer, piece.hints, compute));
  TERRACE_TRY(store_on_device(layer, piece, compute));
  TERRACE_ASSIGN(Ticket stored, compute.record());
  if (!keeps_everything()) {
    TERRACE_TRY(offload_queue_->wait_for(stored));
    const StoreRows store{.source = piece.kv,
                          .tokens = piece.tokens,
                          .target = table(layer.host_blocks),
                          .shape = runtime_.shape(),
                          .crosses_link = true};
    TERRACE_ASSIGN(layer.offloaded,
                   runtime_.backend->ops().store_rows(*offload_queue_, Phase::offload, store));
    counters_.bytes.offload += piece.tokens.size() * runtime_.shape().token_bytes();
    stored = layer.offloaded;
  }
  appended_ = piece.tokens.end;
  return stored;
}

Status SequenceState::finish(LayerId id, Queue& compute) {
  TERRACE_TRY(take_turn("finish", SequencePhase::prefill, id, compute));
  if (appended_ != prefill_end_) {
    return fail(Errc::invalid_argument, "finish: layer {} has not been appended whole", index(id));
  }
  LayerState& layer = layer_state(id);
  if (index(id) > 0) {
    // What came before on the compute queue is what hides the clustering of the layer before.
    TimePoint* const until = &hidden_until_[index(id) - 1];
    const Clock* const clock = &runtime_.backend->clock();
    TERRACE_TRY(compute.call(Phase::update, [until, clock]() -> Result<std::size_t> {
      *until = clock->now();
      return 0;
    }));
  }
  TERRACE_ASSIGN(layer.attended, compute.record());
  if (!runtime_.index_layout.empty() && split_.selected > 0) {
    const TokenRange tokens{sinks_at(prefill_end_).end, prefill_end_};
    const bool anew = layer.index.tokens.empty() || is_outgrown(layer.index, tokens.size());
    TERRACE_TRY(anew ? build_index(index(id), tokens) : extend_index(index(id), prefill_end_));
    TERRACE_TRY(send_uploads());
  }
  ++next_layer_;
  appended_ = length_;
  return {};
}

Status SequenceState::end_prefill() {
  if (phase_ != SequencePhase::prefill || next_layer_ != layers_.size()) {
    return fail(Errc::invalid_argument, "end_prefill: {} of {} layers are finished", next_layer_,
                layers_.size());
  }
  for (const LayerState& layer : layers_) {
    Status stored = wait(layer.offloaded, deadline());
    if (stored) stored = wait(layer.attended, deadline());
    if (!stored) {
      settle_queues();
      phase_ = SequencePhase::lost;
      return tl::unexpected(stored.error().while_doing("prefill failed, the sequence is lost"));
    }
  }
  for (LayerState& layer : layers_) layer.attended = {};
  compute_ = nullptr;
  length_ = prefill_end_;
  for (LayerState& layer : layers_) layer.first_window_block = 0;
  phase_ = SequencePhase::idle;
  return {};
}

}  // namespace terrace
