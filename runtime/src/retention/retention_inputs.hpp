// The data that retention takes from the engine, as far as its policy chooses by it: queries of the
// last tokens, keys before RoPE, attention weights of a prompt.
#pragma once

#include "layer/step_input.hpp"
#include "services/sequence_services.hpp"

namespace terrace {

class Layer;

/// Threads  one at a time
class RetentionInputs {
 public:
  explicit RetentionInputs(const SequenceServices& services) noexcept
      : plan_(services.plan), work_(services.work), threads_(services.threads) {}

  /// Whether attention is to give its weights in a layer.
  [[nodiscard]] bool wants_weights(const Layer& layer) const noexcept;
  [[nodiscard]] bool wants_weights() const noexcept;

  /// Has memory for a layer's queries. Errors: out_of_memory.
  Status reserve(Layer& layer) const;
  /// Errors: invalid_argument: hints of `tokens` tokens lack keys before RoPE.
  [[nodiscard]] Status check(const Layer& layer, const PromptHints& hints,
                             std::size_t tokens) const;
  /// Takes data of a step's tokens, which work enqueued on `compute` before may produce. Errors:
  /// those of queues.
  Status keep_step(Layer& layer, TokenRange tokens, const StepInput& input, Queue& compute) const;

 private:
  [[nodiscard]] const RetentionTraits& traits() const noexcept { return plan_.retention->traits(); }
  /// Whether a layer's tokens are decided on.
  [[nodiscard]] bool retains(const Layer& layer) const noexcept;
  [[nodiscard]] bool wants_queries(const Layer& layer) const noexcept;
  [[nodiscard]] bool wants_keys(const Layer& layer) const noexcept;
  Status rate(Layer& layer, TokenRange tokens, const PromptHints& hints, Queue& compute) const;

  const RuntimePlan& plan_;
  SequenceWork& work_;
  ClusterThreads& threads_;
};

}  // namespace terrace
