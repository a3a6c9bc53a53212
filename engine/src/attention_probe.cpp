#include "terrace/engine/attention_probe.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace terrace::engine {
namespace {

/// Softmax over `logits` in double, into `weights`.
void softmax_into(std::span<const float> logits, std::span<double> weights) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weights[i] = std::exp(static_cast<double>(logits[i]) - static_cast<double>(largest));
    sum += weights[i];
  }
  for (double& weight : weights) weight /= sum;
}

/// Share of the `ids` that are among the ids.size() largest of `weights` (ties to lower positions);
/// weights[i] belongs to position first + i.
double overlap_with_top(std::span<const std::uint32_t> ids, std::span<const double> weights,
                        std::size_t first) {
  std::vector<std::uint32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto better = [&](std::uint32_t a, std::uint32_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  };
  const std::size_t k = std::min(ids.size(), weights.size());
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k) - 1, order.end(),
                   better);
  std::vector<bool> top(weights.size());
  for (std::size_t i = 0; i < k; ++i) top[order[i]] = true;
  const auto found =
      std::count_if(ids.begin(), ids.end(), [&](std::uint32_t id) { return top[id - first]; });
  return static_cast<double>(found) / static_cast<double>(ids.size());
}

}  // namespace

AttentionQuality& AttentionQuality::operator+=(const AttentionQuality& other) {
  recall_sum += other.recall_sum;
  recall_count += other.recall_count;
  mass_sum += other.mass_sum;
  mass_count += other.mass_count;
  errors.resize(std::max(errors.size(), other.errors.size()));
  for (std::size_t layer = 0; layer < other.errors.size(); ++layer) {
    errors[layer].difference += other.errors[layer].difference;
    errors[layer].norm += other.errors[layer].norm;
  }
  return *this;
}

double AttentionQuality::error() const noexcept {
  double sum = 0;
  for (const OutputError& layer : errors) sum += std::sqrt(layer.difference / layer.norm);
  return sum / static_cast<double>(errors.size());
}

AttentionProbe::AttentionProbe(const KvShape& shape, std::size_t positions_max)
    : shape_(shape),
      positions_max_(positions_max),
      keys_(shape.layers * shape.kv_heads * positions_max * shape.head_dim),
      values_(keys_.size()) {}

const float* AttentionProbe::keys(std::size_t layer, std::size_t kv_head) const noexcept {
  return keys_.data() + (layer * shape_.kv_heads + kv_head) * positions_max_ * shape_.head_dim;
}

const float* AttentionProbe::values(std::size_t layer, std::size_t kv_head) const noexcept {
  return values_.data() + (keys(layer, kv_head) - keys_.data());
}

void AttentionProbe::on_rows(std::size_t layer, TokenRange tokens, const KvTensors& kv) {
  for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
    const std::size_t first = tokens.begin * shape_.head_dim;
    float* key = const_cast<float*>(keys(layer, head)) + first;
    float* value = const_cast<float*>(values(layer, head)) + first;
    for (std::size_t token = 0; token < tokens.size(); ++token) {
      const std::size_t row = token * kv.token_stride + head * kv.head_stride;
      for (std::size_t i = 0; i < shape_.head_dim; ++i) {
        *key++ = load_f32(kv.keys + row, shape_.dtype, i);
        *value++ = load_f32(kv.values + row, shape_.dtype, i);
      }
    }
  }
}

void AttentionProbe::compare(std::span<const float> output, std::span<const double> weights,
                             std::size_t layer, std::size_t kv_head, HeadQuality& result) const {
  if (output.empty()) return;
  std::vector<double> exact(shape_.head_dim);
  const float* value = values(layer, kv_head);
  for (const double weight : weights) {
    for (double& sum : exact) sum += weight * static_cast<double>(*value++);
  }
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double difference = static_cast<double>(output[i]) - exact[i];
    result.error.difference += difference * difference;
    result.error.norm += exact[i] * exact[i];
  }
}

AttentionProbe::HeadQuality AttentionProbe::measure_head(const Attended& attended,
                                                         std::size_t layer,
                                                         std::size_t kv_head) const {
  HeadQuality measured;
  AttentionQuality& result = measured.quality;
  const StepSelection& selection = attended.selection;
  const std::size_t positions = selection.window.end;
  const TokenRange candidates{selection.sinks.end, selection.window.begin};
  const bool selected = !selection.counts.empty() && !candidates.empty();
  const auto list_of = [&](std::size_t list) {
    return selection.ids.subspan(list * selection.stride, selection.counts[list]);
  };
  const auto scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
  std::vector<float> logits(positions);
  std::vector<double> weights(positions);
  std::vector<double> head_weights(candidates.size());
  std::vector<double> group_weights(candidates.size());
  const auto add_recall = [&](std::size_t list, std::span<double> truth) {
    if (selection.counts[list] == 0) return;
    // Tokens that are attended to as entries are not for selection.
    for (const std::uint32_t position : attended.entries.positions) {
      if (candidates.contains(position)) truth[position - candidates.begin] = -1;
    }
    result.recall_sum += overlap_with_top(list_of(list), truth, candidates.begin);
    ++result.recall_count;
  };
  for (std::size_t g = 0; g < shape_.group(); ++g) {
    const std::size_t query_head = kv_head * shape_.group() + g;
    const float* const q = attended.query.data() + query_head * shape_.head_dim;
    const float* key = keys(layer, kv_head);
    for (std::size_t i = 0; i < positions; ++i, key += shape_.head_dim) {
      logits[i] = scale * std::inner_product(key, key + shape_.head_dim, q, 0.0F);
    }
    softmax_into(logits, weights);
    double mass = std::accumulate(
        weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(selection.sinks.end), 0.0);
    mass += std::accumulate(weights.begin() + static_cast<std::ptrdiff_t>(selection.window.begin),
                            weights.end(), 0.0);
    for (std::size_t i = 0; i < attended.entries.positions.size(); ++i) {
      if (attended.entries.degrees[i] == 1) mass += weights[attended.entries.positions[i]];
    }
    if (!attended.output.empty()) {
      compare(attended.output.subspan(query_head * shape_.head_dim, shape_.head_dim), weights,
              layer, kv_head, measured);
    }
    if (selected) {
      const bool own_list = selection.scope == ListScope::query_head;
      for (const std::uint32_t id : list_of(own_list ? query_head : kv_head)) mass += weights[id];
      softmax_into(std::span(logits).subspan(candidates.begin, candidates.size()), head_weights);
      if (own_list) add_recall(query_head, head_weights);
      std::transform(group_weights.begin(), group_weights.end(), head_weights.begin(),
                     group_weights.begin(), std::plus<>());
    }
    result.mass_sum += mass;
    ++result.mass_count;
  }
  if (selected && selection.scope == ListScope::kv_head) add_recall(kv_head, group_weights);
  return measured;
}

AttentionQuality AttentionProbe::measure(const Sequence& sequence, const Decoder& decoder,
                                         Parallel& threads) {
  std::vector<HeadQuality> results(shape_.layers * shape_.kv_heads);
  threads.for_each(results.size(), [&](std::size_t part) {
    const std::size_t layer = part / shape_.kv_heads;
    const std::size_t head = part % shape_.kv_heads;
    const auto id = static_cast<LayerId>(layer);
    results[part] = measure_head({.selection = sequence.selection(id),
                                  .entries = sequence.entries(id, static_cast<HeadId>(head)),
                                  .query = decoder.query(layer),
                                  .output = decoder.attention(layer)},
                                 layer, head);
  });
  // Summed in order, so that sums do not depend on which thread was first.
  AttentionQuality step;
  for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      const HeadQuality& one = results[layer * shape_.kv_heads + head];
      step += one.quality;
      if (decoder.attention(layer).empty()) continue;
      step.errors.resize(shape_.layers);
      step.errors[layer].difference += one.error.difference;
      step.errors[layer].norm += one.error.norm;
    }
  }
  quality_ += step;
  return step;
}

}  // namespace terrace::engine
