// Queues: how work is put in order, on every backend.
//
//   auto kv_ready = compute.record();                 // a point in compute's order
//   offload.wait_for(*kv_ready);                      // offload's later work starts after it
//   auto done = offload.copy(Phase::offload, extents);
//   ...
//   offload.wait(*done, deadline);                    // the host waits, never without a limit
//
// The ordering rule, for all backends (tests/contract/queue_contract_test.cpp):
//   1. Work of one queue runs in the order it was enqueued, one piece after the other.
//   2. Queues are unordered towards each other, but for wait_for(ticket): what is enqueued after it
//      starts when the ticket's work is done, and sees what that work wrote. wait_for(event) does
//      the same with something that no queue does, as reading pages from a disk is; it never fails.
//   3. A ticket is done when its work and all work before it on its queue is done.
//   4. When a piece of work fails, its queue is *failed*: later work is skipped, every ticket from
//      the failed one on reports the first error, and a queue that waits for such a ticket fails
//      with it. clear_error(), called when the queue is idle, makes it usable again: tickets given
//      from then on are not of the work that failed.
//
// Backends make queues (Backend::make_queue), on which enqueueing waits for nothing but room. A
// queue may be an embedder's own, too: its stream (offload/cuda/wrap_queue.hpp) or its thread
// (offload/caller_queue.hpp). On such a queue wait_for() and call() may block the caller, with a
// deadline.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "terrace/core/clock.hpp"
#include "terrace/core/event.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/task.hpp"

namespace terrace {

/// The purpose of a piece of work: the name under which its time and its bytes are counted.
enum class Phase : std::uint8_t {
  model,    ///< the engine's own arithmetic
  select,   ///< choosing rows
  fetch,    ///< missed rows, host to device, on the critical path
  attend,   ///< attention over the chosen rows
  update,   ///< append, codes of tokens that left the window, cache upkeep
  offload,  ///< rows and selected ids, device to host
  refill,   ///< admitted blocks, host to device
  index,    ///< codes and centroids, host to device
  cluster,  ///< building an index on the host
};
inline constexpr std::size_t phase_count = 9;

std::string_view to_string(Phase phase) noexcept;

class Queue;

/// A point in a queue's order. A default ticket is done.
struct Ticket {
  Queue* queue = nullptr;
  std::uint64_t number = 0;
};

/// A contiguous copy. Memory must stay valid until the copy's ticket is done.
struct CopyExtent {
  std::byte* target = nullptr;
  const std::byte* source = nullptr;
  std::size_t bytes = 0;
};

/// Time and bytes of a queue since it was made, by phase. A device measures times if it is told to
/// (CudaBackendOptions::times).
struct QueueCounters {
  std::array<Duration, phase_count> busy{};
  std::array<std::uint64_t, phase_count> bytes{};
  Duration waited{};         ///< blocked in wait_for while later work was queued
  std::uint64_t pieces = 0;  ///< of work that are known to be done
};

/// A piece of work that a queue has run.
struct WorkRecord {
  std::string_view queue = {};  ///< its name; valid during the call only
  Phase phase = Phase::model;
  TimePoint begin{};
  TimePoint end{};
  std::size_t bytes = 0;  ///< moved across the link
};

/// Observes the work of queues, for timelines. Called for the pieces of a queue in their order, one
/// at a time, by the thread that ran a piece or was notified of its end; for several queues at
/// once. An observer must not call a queue.
class WorkObserver {
 public:
  WorkObserver() = default;
  WorkObserver(const WorkObserver&) = delete;
  WorkObserver& operator=(const WorkObserver&) = delete;
  virtual ~WorkObserver() = default;
  virtual void on_work(const WorkRecord& record) = 0;
};

/// An ordered stream of copies and kernels on one device.
///
/// Threads  one thread at a time enqueues on a queue; poll, wait and counters from any thread
class Queue {
 public:
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  virtual ~Queue() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// The threads that work enqueued here may split itself over: the backend's device threads on
  /// a device queue, the queue's own alone on a host queue (its users bring theirs).
  [[nodiscard]] virtual Parallel& threads() noexcept = 0;

  /// Enqueues a batch of copies between any two tiers, as one piece of work.
  /// Errors: invalid_argument for a null pointer with bytes to move.
  [[nodiscard]] Result<Ticket> copy(Phase phase, std::span<const CopyExtent> extents);

  /// Enqueues a host function. If the backend's device is not the host, the function must not touch
  /// device memory. The bytes that it returns are counted (and take time on an imitated link).
  [[nodiscard]] Result<Ticket> call(Phase phase, Task task);

  /// Enqueues what an op puts on the device: `task` tells the device of its work and returns.
  /// `task` is called in the queue's order, on a device queue before earlier work is done, by the
  /// calling thread or that of the queue's lane; where kernels run on the host, launch() is call().
  /// The bytes that `task` returns are counted.
  [[nodiscard]] Result<Ticket> launch(Phase phase, Task task);

  /// Returns a ticket for all work enqueued so far. To wait for it is to wait for no later work, on
  /// a device at the cost of an event; a wait for another ticket may end with work that was
  /// enqueued after it and before the wait.
  [[nodiscard]] Result<Ticket> record() { return do_record(); }

  /// Makes work enqueued from now on start after `ticket` (of any queue of the same backend).
  [[nodiscard]] Status wait_for(Ticket ticket);

  /// Makes work enqueued from now on start once `event` is set. One that is never set holds the
  /// queue up until its end.
  [[nodiscard]] Status wait_for(const Event& event);

  /// Returns whether the work of a ticket (of whatever queue) is done, or the error that ended it.
  [[nodiscard]] Result<bool> poll(Ticket ticket) {
    return ticket.queue == nullptr ? Result<bool>{true} : ticket.queue->do_poll(ticket);
  }

  /// Waits on the host until the work of a ticket (of any queue) is done. Errors: the work's own;
  /// not_ready when `timeout` has passed (the work goes on).
  [[nodiscard]] Status wait(Ticket ticket, Duration timeout) {
    return ticket.queue == nullptr ? Status{} : ticket.queue->do_wait(ticket, timeout);
  }

  /// Waits for everything enqueued so far.
  [[nodiscard]] Status drain(Duration timeout);

  /// Makes a failed queue usable again. Errors: not_ready while work is enqueued.
  [[nodiscard]] virtual Status clear_error() = 0;

  [[nodiscard]] virtual QueueCounters counters() const = 0;

 private:
  virtual Result<Ticket> do_copy(Phase phase, std::span<const CopyExtent> extents) = 0;
  virtual Result<Ticket> do_call(Phase phase, Task task) = 0;
  virtual Result<Ticket> do_launch(Phase phase, Task task) {
    return do_call(phase, std::move(task));
  }
  virtual Result<Ticket> do_record() = 0;
  virtual Status do_wait_for(Ticket ticket) = 0;
  virtual Status do_wait_for_event(const Event& event) = 0;
  virtual Result<bool> do_poll(Ticket ticket) = 0;
  virtual Status do_wait(Ticket ticket, Duration timeout) = 0;
};

/// Waits for a ticket of any queue. A default ticket is done.
[[nodiscard]] inline Status wait(Ticket ticket, Duration timeout) {
  return ticket.queue == nullptr ? Status{} : ticket.queue->wait(ticket, timeout);
}

/// Returns whether a ticket of any queue is done.
[[nodiscard]] inline Result<bool> poll(Ticket ticket) {
  return ticket.queue == nullptr ? Result<bool>{true} : ticket.queue->poll(ticket);
}

}  // namespace terrace
