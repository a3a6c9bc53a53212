#include "retention_inputs.hpp"

#include <cstring>
#include <memory>
#include <vector>

#include "sequence/layer.hpp"

namespace terrace {

bool RetentionInputs::retains(const Layer& layer) const noexcept {
  return context_.retains() && !context_.is_dense(layer.number);
}

bool RetentionInputs::wants_weights() const noexcept {
  return context_.retains() && traits().scores == ScoredQueries::all;
}

bool RetentionInputs::wants_weights(const Layer& layer) const noexcept {
  return retains(layer) && traits().scores == ScoredQueries::all;
}

bool RetentionInputs::wants_queries(const Layer& layer) const noexcept {
  return retains(layer) && traits().scores == ScoredQueries::last;
}

bool RetentionInputs::wants_keys(const Layer& layer) const noexcept {
  return retains(layer) && traits().needs_pre_rope_keys;
}

Status RetentionInputs::reserve(Layer& layer) const {
  if (!wants_queries(layer)) return {};
  return layer.retention.queries.reserve(context_.backend(), context_.shape(),
                                         traits().score_window);
}

Status RetentionInputs::check(const Layer& layer, const PromptHints& hints,
                              std::size_t tokens) const {
  if (!wants_keys(layer)) return {};
  const std::size_t numbers = tokens * context_.shape().kv_heads * context_.shape().head_dim;
  if (hints.pre_rope_keys.size() == numbers) return {};
  return fail(Errc::invalid_argument,
              "retention.policy {} needs keys before RoPE, {} numbers; the hints have {}",
              traits().name, numbers, hints.pre_rope_keys.size());
}

Status RetentionInputs::check_piece(const Layer& layer, const PromptPiece& piece,
                                    std::size_t prompt_end) const {
  TERRACE_TRY(check(layer, piece.hints, piece.tokens.size()));
  if (piece.tokens.end < prompt_end) return {};
  const KvShape& shape = context_.shape();
  if (wants_queries(layer) &&
      piece.hints.query_window.size() < shape.query_heads * shape.head_dim) {
    return fail(Errc::invalid_argument,
                "retention.policy {} needs the queries of the prompt's last tokens", traits().name);
  }
  if (!wants_weights(layer)) return {};
  const std::size_t weights = traits().score_heads(shape) * prompt_end;
  if (piece.hints.attention_scores.size() == weights) return {};
  return fail(Errc::invalid_argument,
              "retention.policy {} needs attention weights: give the prompt in steps, or "
              "attention_scores, {} numbers, with its last piece",
              traits().name, weights);
}

Status RetentionInputs::keep_step(Layer& layer, TokenRange tokens, const StepInput& input,
                                  Queue& compute) const {
  if (wants_queries(layer)) {
    std::vector<CopyExtent> extents;
    layer.retention.queries.list_copies(tokens, input.query, input.query_stride, extents);
    // Behind the layer the engine's memory may have other queries.
    TERRACE_TRY(compute.copy(Phase::offload, extents));
  }
  return rate(layer, tokens, input.hints, compute);
}

Status RetentionInputs::keep_piece(Layer& layer, const PromptPiece& piece, std::size_t prompt_end,
                                   Queue& compute) const {
  TERRACE_TRY(keep_queries(layer, piece, compute));
  TERRACE_TRY(rate(layer, piece.tokens, piece.hints, compute));
  return keep_weights(layer, piece, prompt_end, compute);
}

Status RetentionInputs::rate(Layer& layer, TokenRange tokens, const PromptHints& hints,
                             Queue& compute) const {
  if (!wants_keys(layer)) return {};
  LayerRetention& mine = layer.retention;
  return mine.ratings.keep(context_, layer.id(), tokens, hints.pre_rope_keys, compute, mine.scores);
}

Status RetentionInputs::keep_queries(Layer& layer, const PromptPiece& piece, Queue& compute) const {
  if (!wants_queries(layer)) return {};
  const std::size_t numbers = context_.shape().query_heads * context_.shape().head_dim;
  const std::size_t tokens = piece.hints.query_window.size() / numbers;
  std::vector<CopyExtent> extents;
  layer.retention.queries.list_copies({piece.tokens.end - tokens, piece.tokens.end},
                                      piece.hints.query_window.data(), numbers, extents);
  const auto copy = [extents = std::move(extents)]() -> Result<std::size_t> {
    for (const CopyExtent& one : extents) std::memcpy(one.target, one.source, one.bytes);
    return 0;
  };
  return compute.call(Phase::update, copy).map([](Ticket) {});
}

Status RetentionInputs::keep_weights(Layer& layer, const PromptPiece& piece, std::size_t prompt_end,
                                     Queue& compute) const {
  if (!wants_weights(layer) || piece.tokens.end < prompt_end) return {};
  const std::size_t lists = traits().score_heads(context_.shape());
  auto sums = std::make_shared<std::vector<float>>();
  const auto copy = [sums, given = piece.hints.attention_scores]() -> Result<std::size_t> {
    sums->assign(given.begin(), given.end());
    return 0;
  };
  TERRACE_ASSIGN(const Ticket copied, compute.call(Phase::update, copy));
  Queue& cluster = context_.lanes.cluster();
  TERRACE_TRY(cluster.wait_for(copied));
  const auto add = [sums, lists, prompt_end,
                    &scores = layer.retention.scores]() -> Result<std::size_t> {
    TokenWeights{sums->data(), lists, prompt_end, {.sinks = {0, prompt_end}}}.add_to(scores);
    return 0;
  };
  return cluster.call(Phase::update, add).map([](Ticket) {});
}

}  // namespace terrace
