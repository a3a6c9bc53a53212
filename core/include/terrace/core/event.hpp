// Something that happens once: threads wait for it, queues do (Queue::wait_for), and callbacks hear
// of it.
//
//   const StoreTicket ticket = *store.submit(gets);
//   copies.wait_for(ticket.done);   // copies behind it start when pages are there
#pragma once

#include <functional>
#include <memory>

#include "terrace/core/clock.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

/// Copies are of the same event. It says that something is over, and not how it has ended.
///
/// Threads  safe from any thread
class Event {
 public:
  Event();

  /// Says that it has happened: those who wait go on, and see what was written before. Callbacks
  /// run on the calling thread, before this returns. From the second time on nothing happens.
  void set() const;

  [[nodiscard]] bool is_set() const noexcept;

  /// Errors: not_ready when `timeout` has passed.
  [[nodiscard]] Status wait(Duration timeout) const;

  /// Has a callback run once: when the event is set, on the thread that sets it, or now if it is
  /// set. The callback must be brief, must not throw, and must wait for nothing that the same
  /// thread does.
  void then(std::function<void()> callback) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace terrace
