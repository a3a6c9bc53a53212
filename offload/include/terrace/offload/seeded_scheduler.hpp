// A host backend without threads, for tests: its queues keep their work, and whoever waits or
// polls runs it, piece by piece, in an order drawn from a seed among those the ordering rule
// allows. Equal seeds and equal calls give equal runs.
//
//   SeededScheduler scheduler(seed);
//   auto backend = HostBackend::create({.scheduler = &scheduler});
//
// Imitated links cost no time here. One thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "terrace/core/queue.hpp"

namespace terrace::offload {

class Stepper;

/// A piece of work about to run, or just run.
struct PieceView {
  std::string_view queue = {};
  Phase phase = Phase::model;
  bool is_copy = false;
};

/// Looks on while pieces run. Skipped work and waits are not shown.
class PieceObserver {
 public:
  virtual ~PieceObserver() = default;
  virtual void before(const PieceView& piece) = 0;
  virtual void after(const PieceView& piece) = 0;
};

class SeededScheduler {
 public:
  explicit SeededScheduler(std::uint64_t seed);
  SeededScheduler(const SeededScheduler&) = delete;
  SeededScheduler& operator=(const SeededScheduler&) = delete;
  ~SeededScheduler();

  /// Sets who looks on; null for nobody. It must outlive its use.
  void observe(PieceObserver* observer) noexcept;

  /// Runs one piece of work. Returns whether there was one that could run.
  bool step();

  /// Pieces run since the scheduler was made.
  [[nodiscard]] std::size_t steps() const noexcept;

 private:
  friend class HostBackend;
  class State;
  [[nodiscard]] Stepper& stepper() noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace terrace::offload
