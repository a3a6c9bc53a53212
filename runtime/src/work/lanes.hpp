// A sequence's queues beside compute: each kind of work has its own, so that none holds another up
// and a failure stays with the sequence. Queues of all sequences share the threads of a few lanes.
// In a step the members share one queue more, the step's: rows and selections of all leave by it.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "terrace/core/backend.hpp"

namespace terrace {

/// Errors: invalid_argument: no queue of the backend's device. The backend does not know tickets or
/// memory of other devices.
[[nodiscard]] Status check_compute(Backend& backend, Queue& compute);

class Lanes {
 public:
  /// `refreshes`: whether indexes are built anew in the background.
  static Result<Lanes> open(Backend& backend, bool refreshes);

  /// Device to host: rows of prompts and drafts, keys to be indexed, weights of attention.
  [[nodiscard]] Queue& offload() const noexcept { return *queues_[0]; }
  [[nodiscard]] Queue& index() const noexcept { return *queues_[1]; }   ///< host to device: codes
  [[nodiscard]] Queue& refill() const noexcept { return *queues_[2]; }  ///< host to device: cache
  [[nodiscard]] Queue& cluster() const noexcept {
    return *queues_[3];
  }  ///< host: steps wait for it
  /// The queue of host work that no step waits for; null if there is no such queue.
  [[nodiscard]] Queue* refresh() const noexcept { return queues_[4].get(); }

  /// The sequence takes part in a step with that queue; null once the step has ended. A sequence
  /// that is lost in a step keeps the queue.
  void lend_step_queue(std::shared_ptr<Queue> queue) noexcept { step_ = std::move(queue); }

  struct Rest {
    bool at_rest = true;        ///< all queues have stopped and can be used again
    bool failed = false;        ///< some work had failed
    bool compute_ended = true;  ///< nothing is left in the compute queue
  };

  /// Waits until all work has stopped, that of `compute` (may be null) and of the step's queue too,
  /// then clears errors.
  [[nodiscard]] Rest settle(Queue* compute, Duration patience) const;

  /// Ends the queues: cancels what is enqueued and waits for what runs.
  void close() noexcept {
    for (std::unique_ptr<Queue>& queue : queues_) queue.reset();
    step_.reset();
  }

 private:
  std::array<std::unique_ptr<Queue>, 5> queues_;
  std::shared_ptr<Queue> step_;
};

}  // namespace terrace
