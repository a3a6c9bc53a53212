// The thread of a store on other machines: it sends requests to servers, and reads their answers.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "remote_nodes.hpp"
#include "storage/page_batches.hpp"
#include "terrace/offload/thread.hpp"
#include "wake_event.hpp"

namespace terrace::offload {

/// Requests begin as RequestOrder has them. All of them begin that may, but for background ones:
/// few of them at a time, so that awaited ones do not wait behind them.
///
/// Threads  open() and the end by the owner; batches(), wake(), cancel_some(), usage() and state()
///          from any; all else by the worker's thread
class RemoteStore::Worker {
 public:
  explicit Worker(const RemoteStoreOptions& options);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  /// Starts the thread. Errors: those of RemoteStore::open.
  [[nodiscard]] Status open();
  /// Ends the thread, which waits for answers until their deadline.
  void end() noexcept;

  [[nodiscard]] PageBatches& batches() noexcept { return batches_; }
  void wake() const noexcept { wake_->set(); }
  void cancel_some() noexcept;
  [[nodiscard]] StoreUsage usage() const;
  [[nodiscard]] RemoteStoreState state() const;
  /// Whether this is the process that opened the store, and not a child of it.
  [[nodiscard]] bool is_of_this_process() const noexcept { return wake_->descriptor() >= 0; }
  /// Keeps the worker of another process: it has no thread here.
  static void keep(std::unique_ptr<Worker> worker);

 private:
  [[nodiscard]] Status check_options() const;
  void serve();
  /// Begins, sends, hears and ends what it can. Returns whether there may be more to do at once.
  bool go_on();
  void take_new(TimePoint now);
  void end_cancelled();
  void begin_some(TimePoint now);
  void begin(PageWork work, TimePoint now);
  void dispatch(const FlightPointer& flight);
  /// Sends a request on its way, or ends it.
  void go(const FlightPointer& flight, RemoteNodes::Route route);
  void dispatch_waiting();
  void hear(NodeNews& news);
  void answered(const FlightPointer& flight);
  void refused(const FlightPointer& flight, std::string_view error);
  void end_late(TimePoint now);
  void wait_for_events(Duration longest);

  void finish(const FlightPointer& flight, const Status& status);
  void conclude(const PageWork& work, const Status& status);
  void count(const PageRequest& request, const PageOutcome& outcome);

  const RemoteStoreOptions options_;
  const std::shared_ptr<WakeEvent> wake_;
  PageBatches batches_;
  Thread thread_;
  std::atomic<bool> stops_{false};
  std::atomic<bool> any_cancelled_{false};

  RemoteNodes nodes_;
  RequestOrder order_;
  Flights flights_;                     ///< that have begun
  std::vector<FlightPointer> waiting_;  ///< of those: for the first greeting of a node
  std::size_t background_flights_ = 0;
  std::uint64_t background_bytes_ = 0;
  std::vector<pollfd> polls_;

  mutable std::mutex mutex_;  ///< guards both below
  RemoteStoreState state_;
  StoreUsage usage_;
};

}  // namespace terrace::offload
