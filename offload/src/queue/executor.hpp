// How the pieces of a queue are carried out: on the host, or by a stream of a device.
//
// The queue decides when and on which thread (worker_queue.hpp, caller_queue.hpp); it hands each
// piece over in order, once what the piece needs has come about.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "phase_counters.hpp"
#include "piece.hpp"
#include "progress.hpp"
#include "terrace/core/queue.hpp"

namespace terrace::offload {

struct ExecutorSetup {
  std::string name;             ///< of the queue
  Parallel* threads = nullptr;  ///< that work may split itself over
  const Clock* clock = nullptr;
  WorkObserver* observer = nullptr;  ///< sees each piece that ran; null = no observer
};

/// Threads  carry_out from one thread at a time, which the queue orders; the rest from any thread
class Executor {
 public:
  /// The milestone of other work that has to be reached before a piece can be carried out.
  struct Need {
    Progress* progress = nullptr;  ///< whose; null = nothing
    std::uint64_t number = 0;
    Milestone milestone = Milestone::done;

    [[nodiscard]] bool is_met() const noexcept {
      return progress == nullptr || progress->has_reached(number, milestone);
    }
  };

  Executor(ExecutorSetup setup, std::shared_ptr<Progress> progress)
      : setup_(std::move(setup)), progress_(std::move(progress)) {}
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Ends when all that was carried out is done.
  virtual ~Executor() = default;

  [[nodiscard]] virtual Need need(const Piece& piece) const = 0;

  /// Whether carrying out a piece takes little time: the enqueuing thread may do so.
  [[nodiscard]] virtual bool is_brief(Piece::Kind kind) const noexcept = 0;

  /// Carries a piece out, whose need is met, or not, where the queue has failed or ends. Publishes
  /// what became of it, now or later in the same order, and lets go of what the piece holds.
  virtual void carry_out(Piece& piece) = 0;

  /// Publishes what is done and was not yet heard of.
  virtual void look() {}

  /// Has all later pieces cancelled, and cuts short what can be.
  virtual void stop() noexcept { stopping_.store(true, std::memory_order_release); }

  [[nodiscard]] const ExecutorSetup& setup() const noexcept { return setup_; }
  [[nodiscard]] const std::shared_ptr<Progress>& progress() const noexcept { return progress_; }
  [[nodiscard]] PhaseCounters& counters() noexcept { return counters_; }
  [[nodiscard]] const PhaseCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }

 protected:
  /// Whether a piece is not to be carried out: the queue has failed, or ends.
  [[nodiscard]] bool is_skipped(const Piece& piece);

  /// Counts a piece that ran, and shows it to the observer.
  void count(Phase phase, TimePoint begin, TimePoint end, std::size_t bytes);

 private:
  ExecutorSetup setup_;
  std::shared_ptr<Progress> progress_;
  PhaseCounters counters_;
  std::atomic<bool> stopping_{false};
};

}  // namespace terrace::offload
