#include "threaded_queue.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>

#include "pending_transfer.hpp"
#include "terrace/offload/thread.hpp"
#include "waiting_transfers.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t threads_max = 16;  // each has one transfer at a time under way

class ThreadedQueue final : public FileQueue {
 public:
  ThreadedQueue(const StorageFile& file, const FileQueueOptions& options)
      : FileQueue(file, options.depth) {}
  ThreadedQueue(const ThreadedQueue&) = delete;
  ThreadedQueue& operator=(const ThreadedQueue&) = delete;
  ~ThreadedQueue() override;

  Status start();
  [[nodiscard]] std::string_view engine() const noexcept override { return "threads"; }
  void wake() noexcept override;

 private:
  void do_submit(std::span<const FileTransfer> transfers) override;
  std::size_t do_reap(std::span<FinishedTransfer> finished, Duration timeout) override;

  void work();
  [[nodiscard]] FinishedTransfer carry_out(const FileTransfer& transfer) const;

  std::mutex mutex_;  ///< guards all below but the threads
  std::condition_variable more_work_;
  std::condition_variable news_;
  WaitingTransfers waiting_;
  std::deque<FinishedTransfer> ended_;
  bool woken_ = false;
  bool stops_ = false;
  std::vector<Thread> threads_;
};

Status ThreadedQueue::start() {
  try {
    for (std::size_t i = 0; i < std::min(depth(), threads_max); ++i) {
      threads_.emplace_back([this] { work(); });
      threads_.back().set_name("file");
    }
  } catch (const std::system_error& error) {
    // Fewer are slower; without any, transfers would never end.
    if (threads_.empty()) {
      return fail(Errc::out_of_memory, "{}: no thread for its transfers: {}", file().path(),
                  error.what());
    }
  }
  return {};
}

ThreadedQueue::~ThreadedQueue() {
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
    waiting_.clear();
  }
  more_work_.notify_all();
  for (Thread& thread : threads_) thread.join();
}

void ThreadedQueue::wake() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    woken_ = true;
  }
  news_.notify_one();
}

void ThreadedQueue::do_submit(std::span<const FileTransfer> transfers) {
  {
    const std::scoped_lock lock(mutex_);
    waiting_.add(transfers);
  }
  more_work_.notify_all();
}

std::size_t ThreadedQueue::do_reap(std::span<FinishedTransfer> finished, Duration timeout) {
  std::unique_lock lock(mutex_);
  // A day is as good as for ever: the waiting thread asks again.
  news_.wait_for(lock, std::min<Duration>(timeout, std::chrono::hours(24)),
                 [&] { return !ended_.empty() || woken_; });
  woken_ = false;
  const std::size_t count = std::min(finished.size(), ended_.size());
  std::move(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count), finished.begin());
  ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void ThreadedQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    more_work_.wait(lock, [&] { return stops_ || !waiting_.empty(); });
    if (stops_) return;
    const FileTransfer transfer = waiting_.take();
    lock.unlock();
    const FinishedTransfer finished = carry_out(transfer);
    lock.lock();
    ended_.push_back(finished);
    news_.notify_one();
  }
}

FinishedTransfer ThreadedQueue::carry_out(const FileTransfer& transfer) const {
  PendingTransfer pending(transfer);
  std::optional<Status> end;
  while (!end) {
    const auto offset = static_cast<off_t>(pending.offset());
    const ssize_t moved =
        pending.is_flush() ? ::fdatasync(file().descriptor())
        : pending.is_read()
            ? ::pread(file().descriptor(), pending.data(), pending.bytes(), offset)
            : ::pwrite(file().descriptor(), pending.data(), pending.bytes(), offset);
    end = pending.take(file(), moved < 0 ? -errno : moved);
  }
  return {.tag = transfer.tag, .status = *end};
}

}  // namespace

Result<std::unique_ptr<FileQueue>> open_threaded_queue(const StorageFile& file,
                                                       const FileQueueOptions& options) {
  auto queue = std::make_unique<ThreadedQueue>(file, options);
  TERRACE_TRY(queue->start());
  return queue;
}

}  // namespace terrace::offload
