// How far a queue has come and where it failed: what tickets are answered from. It is shared, so
// that work of other queues may wait for it beyond its queue's end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/clock.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/core/result.hpp"

namespace terrace::offload {

/// Returns the time `timeout` from now, or TimePoint::max() where that is not representable.
TimePoint deadline_after(Duration timeout) noexcept;

/// Hears once that a piece is done.
class ProgressListener {
 public:
  ProgressListener() = default;
  ProgressListener(const ProgressListener&) = delete;
  ProgressListener& operator=(const ProgressListener&) = delete;
  virtual ~ProgressListener() = default;
  /// On the thread that completes the piece.
  virtual void on_done() = 0;
};

/// Threads  issue, fail and complete from the queue's own sides; the rest from any thread
class Progress {
 public:
  explicit Progress(std::string name) : name_(std::move(name)) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  virtual ~Progress() = default;

  [[nodiscard]] std::string_view name() const noexcept { return name_; }

  /// Numbers the next piece of work, from 1.
  std::uint64_t issue() noexcept { return issued_.fetch_add(1, std::memory_order_acq_rel) + 1; }
  [[nodiscard]] std::uint64_t issued() const noexcept {
    return issued_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool is_done(std::uint64_t number) const noexcept {
    return done_.load(std::memory_order_acquire) >= number;
  }
  [[nodiscard]] bool idle() const noexcept { return is_done(issued()); }

  /// Poisons the queue from piece `number` on. The first error stays; an earlier piece that fails
  /// later widens it.
  void fail(std::uint64_t number, const Error& error);
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  /// Publishes that piece `number` and all before it are done, and wakes who waits for it.
  void complete(std::uint64_t number);

  [[nodiscard]] Result<bool> poll(std::uint64_t number) const;

  /// Returns what became of a piece as far as is known: the error that took it, or none (yet).
  [[nodiscard]] Status outcome(std::uint64_t number) const;

  /// Waits in real time, spinning for `spin` first. Errors: the work's; not_ready at the deadline.
  [[nodiscard]] Status wait(std::uint64_t number, TimePoint deadline, Duration spin);

  /// Waits until a piece is done, well or not, or `give_up` is set and wake() called. Returns
  /// whether it is done.
  bool wait_done(std::uint64_t number, TimePoint deadline, Duration spin,
                 const std::atomic<bool>* give_up = nullptr);

  /// Has the listener hear of it when a piece is done, well or not. Returns false where it is done
  /// already: then nobody hears of it.
  [[nodiscard]] bool listen(std::uint64_t number, std::shared_ptr<ProgressListener> listener);

  /// Has all waiters look at their `give_up`.
  void wake();

  /// Ends the failure. Tickets of the work it took keep their error.
  [[nodiscard]] Status clear_error();

 protected:
  /// Waits in real time until `over`, which does not hold before piece `number` has come to what is
  /// waited for, or wake() is called. Spins for `spin` first.
  void wait_until(std::uint64_t number, FunctionRef<bool()> over, TimePoint deadline,
                  Duration spin);

  /// Has those in wait_until look again who wait for a piece up to `number`, after a sequentially
  /// consistent store to what they look at. Waking a thread takes longer than many a piece of work:
  /// who waits for a later piece sleeps on.
  void wake_sleepers(std::uint64_t number);

 private:
  static constexpr std::uint64_t nobody_waits = std::numeric_limits<std::uint64_t>::max();

  struct Failure {
    std::uint64_t first;
    std::uint64_t last;  ///< the largest number while the queue is poisoned
    Error error;
  };

  struct Listening {
    std::uint64_t number;
    std::shared_ptr<ProgressListener> listener;
  };

  std::string name_;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> lowest_awaited_{
      nobody_waits};  ///< of those asleep or listening; or lower
  std::atomic<bool> failed_{false};
  std::atomic<bool> ever_failed_{false};
  mutable std::mutex mutex_;  ///< guards failures_, listening_ and sleep
  std::condition_variable moved_;
  std::vector<Listening> listening_;
  std::vector<Failure> failures_;  ///< one per clear_error, in order of `first`
};

}  // namespace terrace::offload
