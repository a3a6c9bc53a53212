// Builds indexes of layers on the host, beside compute.
#pragma once

#include <atomic>
#include <vector>

#include "index_room.hpp"
#include "layer/layer_index.hpp"
#include "rows/host_rows.hpp"
#include "services/sequence_services.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/core/retrieval.hpp"
#include "terrace/runtime/counters.hpp"

namespace terrace {

class IndexBuilder {
 public:
  IndexBuilder(const SequenceServices& services, LayerSpan layers, IndexRoom& room);

  /// The request to a policy for `tokens` of a layer: to build of them, or to add them.
  [[nodiscard]] BuildRequest request(const Layer& layer, TokenRange tokens,
                                     const HostRows& rows) const;

  /// Enqueues the building of a layer's index. `hidden_by` is the prompt whose compute is to hide
  /// it; empty = none. A dense layer has no index. Errors: out_of_memory, those of queues.
  Status build(Layer& layer, TokenRange tokens, TokenRange hidden_by);

  /// Waits for all builds. A build that failed is enqueued again once `come_to_rest` has cleared
  /// the queues, and its error returned. Errors: not_ready, those of building.
  Status await(FunctionRef<void()> come_to_rest);
  [[nodiscard]] bool building() const noexcept;
  /// Whether await() would return at once.
  [[nodiscard]] bool ready() const noexcept;
  /// Gives up builds whose work has ended.
  void forget() noexcept;
  /// Lets builds under way end soon.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }

  /// A prompt begins.
  void start_prompt();
  /// Notes when `compute` has come so far: what it did before hides the building of `layer`.
  Status note_compute(const Layer& layer, Queue& compute);

  [[nodiscard]] ClusteringReport report() const;

 private:
  /// Lets the cluster queue wait for the layer's rows on the host, and notes when they are there.
  Status note_arrival(Layer& layer);
  void run(Layer& layer, BuildRequest request);
  Status await_one(Layer& layer);
  Status build_again(std::span<Layer* const> failed, FunctionRef<void()> come_to_rest);
  /// Notes whether a build was hidden, and the compute that was to hide it.
  void observe(const Layer& layer);

  const RuntimePlan& plan_;
  SequenceWork& work_;
  ClusterThreads& threads_;
  IterationLimits& iteration_limits_;
  LayerSpan layers_;
  IndexRoom& room_;
  std::vector<TimePoint> hidden_until_;  ///< per layer: when the compute that hides it ended
  std::size_t late_layers_ = 0;
  Duration waited_{};
  std::atomic<bool> cancelled_{false};
};

}  // namespace terrace
