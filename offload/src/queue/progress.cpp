#include "progress.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "spin.hpp"

namespace terrace::offload {

TimePoint deadline_after(Duration timeout) noexcept {
  const TimePoint now = std::chrono::steady_clock::now();
  return timeout > TimePoint::max() - now ? TimePoint::max() : now + timeout;
}

void Progress::fail(std::uint64_t number, const Error& error) {
  const std::scoped_lock lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) {
    failures_.back().first = std::min(failures_.back().first, number);
    return;
  }
  failures_.push_back(
      {.first = number, .last = std::numeric_limits<std::uint64_t>::max(), .error = error});
  failed_.store(true, std::memory_order_release);
  ever_failed_.store(true, std::memory_order_release);
}

void Progress::tell(std::uint64_t number) {
  told_.store(number, std::memory_order_seq_cst);
  wake_sleepers(number);
}

void Progress::complete(std::uint64_t number) {
  // Sequentially consistent against the sleeper's registration: either it sees this number, or it
  // is seen here and woken.
  done_.store(number, std::memory_order_seq_cst);
  wake_sleepers(number);
}

void Progress::wake_sleepers(std::uint64_t number) {
  if (number >= lowest_awaited_.load(std::memory_order_seq_cst)) wake();
}

void Progress::wake() {
  std::vector<Listening> hear;
  {
    // A thread that checked its number before this lock sleeps after it, and is notified. Threads
    // that wait for a higher number register again.
    const std::scoped_lock lock(mutex_);
    std::uint64_t lowest = nobody_waits;
    const auto waits = std::partition(listening_.begin(), listening_.end(), [&](const auto& each) {
      if (has_reached(each.number, each.milestone)) return false;
      lowest = std::min(lowest, each.number);
      return true;
    });
    hear.assign(std::move_iterator(waits), std::move_iterator(listening_.end()));
    listening_.erase(waits, listening_.end());
    lowest_awaited_.store(lowest, std::memory_order_seq_cst);
  }
  moved_.notify_all();
  for (const Listening& each : hear) each.listener->on_reached();
}

void Progress::expect(std::uint64_t number) {
  const std::uint64_t lowest = lowest_awaited_.load(std::memory_order_relaxed);
  lowest_awaited_.store(std::min(lowest, number), std::memory_order_seq_cst);
  on_awaited(number);
}

bool Progress::listen(std::uint64_t number, Milestone milestone,
                      std::shared_ptr<ProgressListener> listener) {
  const std::scoped_lock lock(mutex_);
  expect(number);
  if (has_reached(number, milestone)) return false;
  listening_.push_back({number, milestone, std::move(listener)});
  return true;
}

Result<bool> Progress::poll(std::uint64_t number) const {
  if (!is_done(number)) return false;
  TERRACE_TRY(outcome(number));
  return true;
}

Status Progress::outcome(std::uint64_t number) const {
  if (!ever_failed_.load(std::memory_order_acquire)) return {};
  const std::scoped_lock lock(mutex_);
  for (const Failure& failure : failures_) {
    if (number >= failure.first && number <= failure.last) return tl::unexpected(failure.error);
  }
  return {};
}

Status Progress::wait(std::uint64_t number, TimePoint deadline, Duration spin) {
  if (!wait_reached(number, Milestone::done, deadline, spin)) {
    return terrace::fail(Errc::not_ready,
                         "queue {}: piece {} is not done in time, {} are; a copy or kernel stands "
                         "still, or takes longer than the deadline (key deadline)",
                         name_, number, done_.load(std::memory_order_relaxed));
  }
  TERRACE_TRY(poll(number));
  return {};
}

bool Progress::wait_reached(std::uint64_t number, Milestone milestone, TimePoint deadline,
                            Duration spin) {
  const auto reached = [&] { return has_reached(number, milestone); };
  if (spin_until(reached, std::min(deadline, deadline_after(spin)))) return true;
  std::unique_lock lock(mutex_);
  const auto reached_or_expected = [&] {
    if (reached()) return true;
    expect(number);
    return reached();
  };
  if (deadline != TimePoint::max()) return moved_.wait_until(lock, deadline, reached_or_expected);
  moved_.wait(lock, reached_or_expected);
  return true;
}

Status Progress::clear_error() {
  if (!idle()) {
    return terrace::fail(Errc::not_ready, "queue {}: work is enqueued; drain before clear_error",
                         name_);
  }
  const std::scoped_lock lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) {
    failures_.back().last = issued();
    cleared_.store(issued(), std::memory_order_release);
    failed_.store(false, std::memory_order_release);
  }
  return {};
}

}  // namespace terrace::offload
