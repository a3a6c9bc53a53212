// The host backend without threads: queues keep their work, and a wait or a poll runs it, piece by
// piece, in an order drawn from a seed among those the ordering rule allows. Equal seeds and equal
// calls give equal runs.
//
//   SeededScheduler scheduler(seed);
//   auto backend = scheduler.wrap(HostBackend::create({}).value());
//
// Imitated links cost no time here. One thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "terrace/core/backend.hpp"

namespace terrace::doubles {

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

  /// Returns a backend with the memory, ops and device threads of `host`, whose queues are this
  /// scheduler's. The scheduler must outlive it.
  [[nodiscard]] std::unique_ptr<Backend> wrap(std::unique_ptr<Backend> host);

  /// Sets the observer; null removes it. The observer must outlive its use.
  void observe(PieceObserver* observer) noexcept;

  /// Runs one piece of work. Returns whether there was one that could run.
  bool step();

  /// Pieces run since the scheduler was made.
  [[nodiscard]] std::size_t steps() const noexcept;

 private:
  std::unique_ptr<Stepper> stepper_;
};

}  // namespace terrace::doubles
