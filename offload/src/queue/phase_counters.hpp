// A queue's counters, written by the thread that runs its work and read from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "terrace/core/queue.hpp"

namespace terrace::offload {

class PhaseCounters {
 public:
  void add(Phase phase, Duration busy, std::size_t bytes) noexcept {
    const auto at = static_cast<std::size_t>(phase);
    busy_[at].fetch_add(busy.count(), std::memory_order_relaxed);
    bytes_[at].fetch_add(bytes, std::memory_order_relaxed);
    pieces_.fetch_add(1, std::memory_order_relaxed);
  }
  void add_wait(Duration waited) noexcept {
    waited_.fetch_add(waited.count(), std::memory_order_relaxed);
  }

  [[nodiscard]] QueueCounters read() const noexcept {
    QueueCounters counters;
    for (std::size_t i = 0; i < phase_count; ++i) {
      counters.busy[i] = Duration{busy_[i].load(std::memory_order_relaxed)};
      counters.bytes[i] = bytes_[i].load(std::memory_order_relaxed);
    }
    counters.pieces = pieces_.load(std::memory_order_relaxed);
    counters.waited = Duration{waited_.load(std::memory_order_relaxed)};
    return counters;
  }

 private:
  std::array<std::atomic<Duration::rep>, phase_count> busy_{};
  std::array<std::atomic<std::uint64_t>, phase_count> bytes_{};
  std::atomic<Duration::rep> waited_{0};
  std::atomic<std::uint64_t> pieces_{0};
};

}  // namespace terrace::offload
