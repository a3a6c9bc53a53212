// The retention of a sequence, all layers: when tokens that have left the window are decided on,
// and what goes with those that are dropped.
//
// A flush is decided on the host, beside steps. They go on with the window as it is until the
// decision of all layers is there; then the entries of all layers change hands between two steps.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attention_sums.hpp"
#include "retention_inputs.hpp"
#include "services/sequence_services.hpp"
#include "terrace/core/result.hpp"
#include "terrace/runtime/counters.hpp"

namespace terrace {

class Layer;

/// Threads  one at a time
class SequenceRetention {
 public:
  SequenceRetention(const SequenceServices& services,
                    std::span<const std::unique_ptr<Layer>> layers) noexcept;

  RetentionInputs inputs;
  AttentionSums weights;

  /// Has memory for the queries that the policy chooses by. Errors: out_of_memory.
  Status reserve();
  /// Waits until scores are those of all tokens that have come. Errors: not_ready; those of rating.
  Status await_scores();

  /// Starts a flush if one is due. The sequence is between two steps, and no prompt is half-way.
  /// Errors: out_of_memory; those of queues.
  Status start_if_due();
  /// Whether a flush has been started that has not taken effect.
  [[nodiscard]] bool deciding() const noexcept;
  /// Whether take_over() would have nothing to wait for.
  [[nodiscard]] bool ready() const noexcept;
  /// Lets a flush take effect that is decided, and brings entries to the device. Errors: those of
  /// the decision, which is made again; out_of_memory; those of queues.
  Status take_over();
  /// Waits for the decision, then calls take_over(). Errors: those of take_over(); not_ready.
  Status await();

  /// Errors: invalid_argument: a sequence of `length` tokens cannot be made of what is kept.
  [[nodiscard]] Status check_cut(std::size_t length) const;
  /// The sequence has been cut to its length: to nothing, or after the tokens decided on. Entries
  /// of tokens that are in the window again are gone; the owner of entries makes new ones.
  void cut() noexcept;
  /// The device's entries cannot be relied on.
  void mark_stale() noexcept;

  [[nodiscard]] RetentionReport report() const;

 private:
  [[nodiscard]] bool is_due() const noexcept;
  /// Where tokens end that a flush decides on.
  [[nodiscard]] std::size_t leaving_end() const noexcept;
  /// Returns how many entries each KV head of a layer may have.
  [[nodiscard]] std::vector<std::size_t> rooms(const Layer& layer) const;
  Status start(Layer& layer, std::size_t leaving_end);
  /// The first decision that failed. All are there.
  [[nodiscard]] Status outcome() const;
  void publish();
  /// Gives up rows of blocks all of whose tokens were decided on.
  void release_rows(Layer& layer) const;
  Status refresh_device();

  const RuntimePlan& plan_;
  SequenceProgress& progress_;
  SequenceWork& work_;
  const SequenceMemory& memory_;
  ClusterThreads& threads_;
  std::span<const std::unique_ptr<Layer>> layers_;  ///< that it is for
  std::uint64_t flushes_ = 0;
  std::uint64_t dropped_ = 0;
  Duration busy_{};
};

}  // namespace terrace
