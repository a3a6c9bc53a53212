// Builds a layer's index anew in the background as the sequence grows, one layer at a time, on a
// queue that no step waits for. Tokens that come meanwhile are added to both indexes; the new one
// takes over between two steps, when it lacks few.
#pragma once

#include <atomic>
#include <vector>

#include "index_upkeep.hpp"
#include "services/sequence_services.hpp"

namespace terrace {

class IndexRefresh {
 public:
  IndexRefresh(const SequenceServices& services, LayerSpan layers, IndexRoom& room,
               IndexBuilder& builder, IndexUpkeep& upkeep) noexcept
      : plan_(services.plan),
        progress_(services.progress),
        work_(services.work),
        layers_(layers),
        room_(room),
        builder_(builder),
        upkeep_(upkeep) {}

  /// Begins a refresh that is due, or goes on with the one under way. Between steps, while nothing
  /// is being coded.
  Status go_on();
  /// Lets work under way end soon. Its index does not take over.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  /// Gives a refresh up whose work has ended.
  void stop() noexcept;

 private:
  /// The layer that waits longest of those that are due: where building one takes long, the first
  /// layers would be due again before the last ones ever had their turn.
  [[nodiscard]] Layer* stalest() const noexcept;
  Status start(Layer& layer);
  /// Work has ended: what comes next?
  Status take_up();
  Status catch_up();
  Status publish();
  /// The index there is goes on; the next tokens that are due bring another try.
  Status give_up();
  [[nodiscard]] bool reserve();
  /// Has the next index share no memory: a fork may have that of the one before.
  [[nodiscard]] bool own();
  Status enqueue(TokenRange tokens);

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  LayerSpan layers_;
  IndexRoom& room_;
  IndexBuilder& builder_;
  IndexUpkeep& upkeep_;

  Layer* layer_ = nullptr;          ///< null = no refresh is under way
  IndexImage next_;                 ///< is to take over
  HostRows rows_;                   ///< that it is built of
  std::vector<std::byte*> blocks_;  ///< the layer's on the host: rows there do not change
  TokenRange under_way_;            ///< what is being built or added; once done, the last
  std::size_t begun_at_ = 0;        ///< the sequence's length when that began
  Ticket done_;
  Status result_;  ///< written by the work, read after it is done
  std::atomic<bool> cancelled_{false};
};

}  // namespace terrace
