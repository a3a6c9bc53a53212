#include "retention_inputs.hpp"

#include <vector>

#include "layer/layer.hpp"

namespace terrace {

bool RetentionInputs::retains(const Layer& layer) const noexcept {
  return plan_.retains() && !plan_.is_dense(layer.number);
}

bool RetentionInputs::wants_weights() const noexcept {
  return plan_.retains() && traits().scores == ScoredQueries::all;
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
  return layer.retention.queries.reserve(work_.backend, plan_.shape(), traits().score_window);
}

Status RetentionInputs::check(const Layer& layer, const PromptHints& hints,
                              std::size_t tokens) const {
  if (!wants_keys(layer)) return {};
  const std::size_t numbers = tokens * plan_.shape().kv_heads * plan_.shape().head_dim;
  if (hints.pre_rope_keys.size() == numbers) return {};
  return fail(Errc::invalid_argument,
              "retention.policy {} needs keys before RoPE, {} numbers; the hints have {}",
              traits().name, numbers, hints.pre_rope_keys.size());
}

Status RetentionInputs::keep_step(Layer& layer, TokenRange tokens, const StepInput& input,
                                  Queue& compute) const {
  if (wants_queries(layer)) {
    std::vector<CopyExtent> extents;
    layer.retention.queries.list_copies(tokens, input.query, input.query_stride, extents);
    // After the layer, the engine may write other queries to this memory.
    TERRACE_TRY(compute.copy(Phase::offload, extents));
  }
  return rate(layer, tokens, input.hints, compute);
}

Status RetentionInputs::rate(Layer& layer, TokenRange tokens, const PromptHints& hints,
                             Queue& compute) const {
  if (!wants_keys(layer)) return {};
  LayerRetention& mine = layer.retention;
  return mine.ratings.keep({plan_, work_.lanes.cluster(), threads_}, layer.id(), tokens,
                           hints.pre_rope_keys, compute, mine.scores);
}

}  // namespace terrace
