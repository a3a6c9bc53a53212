// Measures, by exact attention beside a run, how much of what matters a policy attends to.
//
// The probe keeps every key and value in f32, outside all pools and clocks: keys of the prompt once
// (they do not depend on the policy), keys of the steps for each policy anew.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "terrace/core/parallel.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/engine/decoder.hpp"
#include "terrace/runtime/sequence.hpp"

namespace terrace::engine {

/// How far outputs of attention are from exact attention's: squares, summed.
struct OutputError {
  double difference = 0;
  double norm = 0;  ///< of exact attention's
};

/// Sums over the measured (layer, head, step) triples.
struct AttentionQuality {
  double recall_sum = 0;
  std::size_t recall_count = 0;
  double mass_sum = 0;
  std::size_t mass_count = 0;
  std::vector<OutputError> errors = {};  ///< [layers]; empty where outputs were not seen

  /// Share of the true top-k among what was selected; k = selected, truth in the policy's grouping.
  [[nodiscard]] double recall() const noexcept {
    return recall_sum / static_cast<double>(recall_count);
  }
  AttentionQuality& operator+=(const AttentionQuality& other);
  /// Share of the exact softmax over all positions that lies on the attended ones.
  /// Entries that stand for several tokens do not count.
  [[nodiscard]] double mass() const noexcept { return mass_sum / static_cast<double>(mass_count); }
  /// Norm of the difference between the policy's and exact attention's outputs of all steps, over
  /// the norm of the latter, mean over layers.
  [[nodiscard]] double error() const noexcept;
};

/// Threads  measure: one at a time; on_rows: the compute queue's, never while measuring
class AttentionProbe final : public KvObserver {
 public:
  /// `positions_max` positions of every layer; 8 bytes x layers x kv_heads x head_dim each.
  AttentionProbe(const KvShape& shape, std::size_t positions_max);

  void on_rows(std::size_t layer, TokenRange tokens, const KvTensors& kv) override;

  /// Measures the step that `sequence` has just finished, at position sequence.length() - 1, whose
  /// queries `decoder` still has; adds it to quality() and returns it alone.
  AttentionQuality measure(const Sequence& sequence, const Decoder& decoder, Parallel& threads);

  [[nodiscard]] const AttentionQuality& quality() const noexcept { return quality_; }
  void reset() noexcept { quality_ = {}; }

 private:
  /// The rows, and the output, that exact attention is compared with in a layer and KV head.
  struct Attended {
    StepSelection selection = {};
    RetainedEntries entries = {};
    std::span<const float> query = {};   ///< [query_heads, head_dim]
    std::span<const float> output = {};  ///< likewise; may be empty
  };
  struct HeadQuality {
    AttentionQuality quality = {};
    OutputError error = {};
  };
  [[nodiscard]] HeadQuality measure_head(const Attended& attended, std::size_t layer,
                                         std::size_t kv_head) const;
  /// Adds how far the policy's output of a query head is from exact attention's.
  void compare(std::span<const float> output, std::span<const double> weights, std::size_t layer,
               std::size_t kv_head, HeadQuality& result) const;
  [[nodiscard]] const float* keys(std::size_t layer, std::size_t kv_head) const noexcept;
  [[nodiscard]] const float* values(std::size_t layer, std::size_t kv_head) const noexcept;

  KvShape shape_;
  std::size_t positions_max_ = 0;
  std::vector<float> keys_;    ///< [layers, kv_heads, positions_max, head_dim]
  std::vector<float> values_;  ///< likewise
  AttentionQuality quality_;
};

}  // namespace terrace::engine
