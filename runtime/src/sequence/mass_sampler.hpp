// Samples of the attention mass: the share of full attention's softmax weight that lies on the
// tokens that a step attended to. Every so many steps one KV head of one layer is sampled, each in
// its turn: its keys, which are all on the host, against the queries of the step's first token. A
// later token of a draft may be rejected.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "services/sequence_services.hpp"
#include "terrace/core/backend.hpp"
#include "terrace/core/queue.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

class Layer;

/// Threads  one at a time: the sequence's own
class MassSampler {
 public:
  MassSampler(const SequenceServices& services,
              std::span<const std::unique_ptr<Layer>> layers) noexcept;

  // A step, in this order.

  /// Decides whether the step is sampled: every so many of the steps that decode. A step that finds
  /// no host memory for queries is not sampled; the next step is tried instead.
  void begin_step(bool decodes);
  /// Copies queries of the step's first token, after the work enqueued on `compute`, where the
  /// layer is sampled and does not attend to everything; its first token is open. `query`
  /// [query_heads, head_dim], device memory. Errors: those of queues.
  Status keep_query(const Layer& layer, const float* query, Queue& compute);
  /// Counts the sample. The layer's rows and selections are on the host. `exact`: the step attends
  /// to everything. Errors: those of the copying; not_ready.
  Status count(bool exact);
  /// The step is done. An abandoned step does not count.
  void end_step() noexcept;

 private:
  // The layer and KV head whose turn it is.
  [[nodiscard]] Layer& sampled_layer() const noexcept;
  [[nodiscard]] std::size_t sampled_head() const noexcept;
  /// The mass of the layer's first token, whose queries are on the host; nothing where logits are
  /// not finite, or host memory is short.
  [[nodiscard]] std::optional<double> mass_of(Layer& layer) const;

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  tiers::ChunkKeeper* keeper_;  ///< has metrics of the node; null = none
  std::span<const std::unique_ptr<Layer>> layers_;
  std::size_t steps_left_ = 0;  ///< up to the next sample, with that step
  std::size_t turn_ = 0;        ///< among the KV heads of all layers
  bool decodes_ = false;
  bool sampled_ = false;
  Buffer query_;  ///< [group, head_dim] f32, host memory
  Ticket copied_;
};

}  // namespace terrace
