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
#include "terrace/core/result.hpp"

namespace terrace::offload {

/// Returns the time `timeout` from now, or TimePoint::max() where that is not representable.
TimePoint deadline_after(Duration timeout) noexcept;

/// The stations of a piece of work.
enum class Milestone : std::uint8_t {
  told,  ///< the work that it has to come after is known to go well, and a device knows of the
         ///< piece; or the piece is done
  done,
};

/// Hears once that a piece has come to a milestone.
class ProgressListener {
 public:
  ProgressListener() = default;
  ProgressListener(const ProgressListener&) = delete;
  ProgressListener& operator=(const ProgressListener&) = delete;
  virtual ~ProgressListener() = default;
  /// On the thread that brings the piece there.
  virtual void on_reached() = 0;
};

/// Threads  issue, fail, tell and complete from the queue's own sides; the rest from any thread
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
  /// Returns the number that stands for all work so far; 0 where the last piece failed and the
  /// error has been cleared: a later caller must not see that error.
  [[nodiscard]] std::uint64_t last() const noexcept {
    const std::uint64_t number = issued();
    return number == cleared_.load(std::memory_order_acquire) ? 0 : number;
  }
  [[nodiscard]] bool is_done(std::uint64_t number) const noexcept {
    return done_.load(std::memory_order_acquire) >= number;
  }
  [[nodiscard]] bool idle() const noexcept { return is_done(issued()); }

  [[nodiscard]] bool has_reached(std::uint64_t number, Milestone milestone) const noexcept {
    // Sequentially consistent against told_ and done_: see wake_sleepers().
    if (done_.load(std::memory_order_seq_cst) >= number) return true;
    return milestone == Milestone::told && told_.load(std::memory_order_seq_cst) >= number;
  }

  /// Poisons the queue from piece `number` on. The first error stays; an earlier piece that fails
  /// later widens it.
  void fail(std::uint64_t number, const Error& error);
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  /// Publishes that piece `number` and all before it are told, and wakes the threads that wait for
  /// that. A piece that is done is told, too, and need not be published.
  void tell(std::uint64_t number);

  /// Publishes that piece `number` and all before it are done, and wakes the threads that wait for
  /// that.
  void complete(std::uint64_t number);

  [[nodiscard]] Result<bool> poll(std::uint64_t number) const;

  /// Returns what became of a piece as far as is known: the error that took it, or none (yet).
  [[nodiscard]] Status outcome(std::uint64_t number) const;

  /// Has work up to a piece make known when it is done, as exactly as that can be: somebody is to
  /// wait for it. Without this it may be known with later work. If that fails, the work does.
  virtual void mark(std::uint64_t /*number*/) {}

  /// Waits in real time, spinning for `spin` first. Errors: the work's; not_ready at the deadline.
  [[nodiscard]] Status wait(std::uint64_t number, TimePoint deadline, Duration spin);

  /// Waits until a piece has come to a milestone, well or not. Returns whether it has.
  bool wait_reached(std::uint64_t number, Milestone milestone, TimePoint deadline, Duration spin);

  /// Notifies the listener when a piece comes to a milestone, well or not. Returns false where the
  /// piece has come to it already: then the listener is not notified.
  [[nodiscard]] bool listen(std::uint64_t number, Milestone milestone,
                            std::shared_ptr<ProgressListener> listener);

  /// Ends the failure. Tickets of the work it took keep their error.
  [[nodiscard]] Status clear_error();

 protected:
  /// Whether a thread sleeps, or listens, until a piece has come to a milestone.
  [[nodiscard]] bool is_awaited() const noexcept {
    return lowest_awaited_.load(std::memory_order_seq_cst) != nobody_waits;
  }

 private:
  static constexpr std::uint64_t nobody_waits = std::numeric_limits<std::uint64_t>::max();

  struct Failure {
    std::uint64_t first;
    std::uint64_t last;  ///< the largest number while the queue is poisoned
    Error error;
  };

  struct Listening {
    std::uint64_t number;
    Milestone milestone;
    std::shared_ptr<ProgressListener> listener;
  };

  /// Wakes waiting threads, after a sequentially consistent store, if one of them waits for a piece
  /// up to `number`. Waking a thread takes longer than many pieces of work: if all of them wait for
  /// later pieces, they sleep on.
  void wake_sleepers(std::uint64_t number);
  void wake();
  /// A thread is about to sleep until a piece has come to a milestone, or to listen for that:
  /// somebody has to notice when it does. is_awaited() is true by now. With the mutex held, so that
  /// no other thread's piece makes it false meanwhile.
  virtual void on_awaited(std::uint64_t /*number*/) {}
  /// Notes that a thread waits for a piece.
  void expect(std::uint64_t number);

  std::string name_;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> cleared_{0};  ///< the last piece before an error was cleared
  std::atomic<std::uint64_t> told_{0};
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
