// The attention mass as its definition has it, for samples of the runtime to be held against.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "runtime/scenario.hpp"

namespace terrace::testing {

inline constexpr double mass_tolerance = 1e-4;  ///< the runtime adds weights up in f32

/// Softmax weights of a query head's token over all rows up to its own.
inline std::vector<double> weights_of(const Traffic& traffic, std::size_t layer,
                                      std::size_t query_head, std::span<const float> queries,
                                      std::size_t position) {
  const KvShape& shape = traffic.shape();
  std::vector<double> weights;
  for (std::size_t at = 0; at <= position; ++at) {
    const std::vector<std::byte> row = traffic.row(layer, query_head / shape.group(), at);
    double dot = 0;
    for (std::size_t i = 0; i < shape.head_dim; ++i) {
      dot += static_cast<double>(queries[query_head * shape.head_dim + i]) *
             static_cast<double>(load_f32(row.data(), shape.dtype, i));
    }
    weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(shape.head_dim))));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

/// The positions that a query head attended to, one by one, in the step that has just ended.
inline std::vector<std::uint32_t> attended(const Sequence& sequence, LayerId layer,
                                           std::size_t head, std::size_t query_head) {
  const StepSelection chosen = sequence.selection(layer);
  std::vector<std::uint32_t> all;
  for (const TokenRange& range : {chosen.sinks, chosen.window}) {
    for (std::size_t at = range.begin; at < range.end; ++at) {
      all.push_back(static_cast<std::uint32_t>(at));
    }
  }
  const RetainedEntries entries = sequence.entries(layer, static_cast<HeadId>(head));
  for (std::size_t i = 0; i < entries.positions.size(); ++i) {
    if (entries.degrees[i] == 1) all.push_back(entries.positions[i]);
  }
  if (chosen.counts.empty()) return all;
  const std::size_t list = chosen.scope == ListScope::query_head ? query_head : head;
  const auto ids = chosen.ids.subspan(list * chosen.stride, chosen.counts[list]);
  all.insert(all.end(), ids.begin(), ids.end());
  return all;
}

/// A KV head of a layer.
struct MassPlace {
  std::size_t layer = 0;
  std::size_t head = 0;
};

/// The place of a sequence's sample with that number, from 0, in the scenario's two layers of two
/// KV heads: each once in four samples.
inline MassPlace mass_place(std::size_t sequence, std::size_t sample) {
  const std::size_t turn = (sequence + sample) * 3 % 4;
  return {turn / 2, turn % 2};
}

/// The mass that the token at `position` got, mean over the query heads of a KV head.
inline double naive_mass(const Sequence& sequence, const Traffic& traffic, MassPlace place,
                         std::size_t position, std::span<const float> queries) {
  const std::size_t group = traffic.shape().group();
  double sum = 0;
  for (std::size_t i = 0; i < group; ++i) {
    const std::size_t query_head = place.head * group + i;
    const auto weights = weights_of(traffic, place.layer, query_head, queries, position);
    for (const std::uint32_t at :
         attended(sequence, static_cast<LayerId>(place.layer), place.head, query_head)) {
      sum += weights[at];
    }
  }
  return sum / static_cast<double>(group);
}

inline double naive_mass(const Sequence& sequence, const Traffic& traffic, MassPlace place,
                         std::size_t position) {
  return naive_mass(sequence, traffic, place, position, traffic.query(place.layer, position));
}

/// The mean of the samples since the last call. At least one sample must exist.
inline double sampled_mass(Sequence& sequence) {
  const SequenceCounters counters = sequence.counters();
  EXPECT_EQ(counters.mass_samples, 1U);
  sequence.reset_counters();
  return counters.attention_mass / static_cast<double>(counters.mass_samples);
}

}  // namespace terrace::testing
