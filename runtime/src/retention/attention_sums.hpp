// Attention weights on their way from ops to scores. Ops write them to device memory, which all
// layers use in turn; they are copied to the host, and added to scores beside compute once their
// tokens are accepted.
#pragma once

#include <array>
#include <span>

#include "layer/layer_weights.hpp"
#include "services/sequence_services.hpp"

namespace terrace {

class Layer;

/// Threads  one at a time
class AttentionSums {
 public:
  /// `layers`: those that retention is for.
  AttentionSums(const SequenceServices& services,
                std::span<const std::unique_ptr<Layer>> layers) noexcept
      : plan_(services.plan), work_(services.work), layers_(layers) {}

  /// The tokens of a step.
  struct Tokens {
    std::size_t count = 1;
    std::size_t columns = 0;  ///< entries or rows that any of them attends to
    bool together = false;    ///< an op gives the sums of all
    bool of_prompt = false;   ///< they are accepted all, or none
  };
  /// Makes room for the weights of a step's tokens. Errors: out_of_memory; not_ready; those of
  /// queues.
  Status begin_step(const Tokens& tokens);
  void give_up_memory() noexcept;

  /// Returns where the next op is to write. Errors: those of queues.
  Result<AttentionWeights> next(Queue& compute);
  /// Returns where the next op is to write the sums of all tokens together over the first `columns`
  /// positions. The layer's scores so far lie there, so that sums are added in one order however a
  /// prompt is cut. Errors: those of queues.
  Result<AttentionWeights> next_sums(Layer& layer, std::size_t columns, Queue& compute);
  [[nodiscard]] float* scratch() const noexcept { return scratch_.as<float>(); }
  /// The op that `written` ends has written there the weights of a token of the step; of all where
  /// they come together. Errors: those of queues.
  Status send(Layer& layer, std::size_t token, const WeightColumns& columns, Ticket written);
  /// The first `accepted` tokens of the step stay: their weights count. Errors: those of queues.
  Status keep(std::size_t accepted);

  /// Forgets tickets of work. All queues are quiesced.
  void forget_tickets() noexcept;

 private:
  struct Place {
    Buffer memory;  ///< [lists, columns_], on the device
    Ticket copied;
  };
  [[nodiscard]] std::size_t lists() const noexcept;
  Status reserve_device(std::size_t columns);
  Status reserve_host(LayerWeights& weights);

  const RuntimePlan& plan_;
  SequenceWork& work_;
  std::span<const std::unique_ptr<Layer>> layers_;
  std::array<Place, 2> places_;
  std::size_t turn_ = 0;
  Buffer scratch_;
  std::size_t columns_ = 0;
  Tokens tokens_;
};

}  // namespace terrace
