#include "ring_queue.hpp"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>

#include "pending_transfer.hpp"
#include "process_descriptor.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::offload {
namespace {

constexpr std::uint64_t wake_mark = ~std::uint64_t{0};
constexpr int registered_file = 0;
/// Transfers handed over by one system call. More make each cheaper, but the disk is idle until all
/// of them are handed over.
constexpr std::size_t handed_over = 4;
/// Threads of the kernel for work that a file system does not do asynchronously: transfers without
/// O_DIRECT, and flushes. Otherwise there would be four for each CPU, and no limit on threads for
/// descriptors other than files.
constexpr unsigned kernel_threads_max = 4;
/// The largest piece of registered memory that the kernel accepts.
constexpr std::size_t registered_max = std::size_t{1} << 30;

tl::unexpected<Error> no_ring(int reason) {
  return fail(Errc::unsupported, "io_uring: {}", std::strerror(reason));
}

__kernel_timespec timespec_of(Duration timeout) noexcept {
  // A day is as good as for ever: the waiting thread asks again.
  const Duration some = std::clamp<Duration>(timeout, Duration{}, std::chrono::hours(24));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(some);
  return {.tv_sec = seconds.count(), .tv_nsec = (some - seconds).count()};
}

class RingQueue final : public FileQueue {
 public:
  RingQueue(const StorageFile& file, const FileQueueOptions& options)
      : FileQueue(file, options.depth), patience_(options.patience), pending_(options.depth) {
    for (std::size_t slot = options.depth; slot > 0; --slot) free_.push_back(slot - 1);
  }
  RingQueue(const RingQueue&) = delete;
  RingQueue& operator=(const RingQueue&) = delete;
  ~RingQueue() override;

  Status set_up(std::span<const std::span<std::byte>> memory);
  [[nodiscard]] std::string_view engine() const noexcept override { return "io_uring"; }
  void wake() noexcept override;
  [[nodiscard]] std::size_t registered_bytes() const noexcept override {
    std::size_t sum = 0;
    for (const auto& [memory, number] : registered_) sum += memory.size();
    return sum;
  }

 private:
  void do_submit(std::span<const FileTransfer> transfers) override;
  std::size_t do_reap(std::span<FinishedTransfer> finished, Duration timeout) override;

  /// Memory that the kernel knows by a number.
  struct Registered {
    std::span<std::byte> memory;
    int number = 0;
  };

  Status make_ring();
  void register_memory(std::span<const std::span<std::byte>> memory);
  /// Returns the number of the memory that a transfer lies in.
  [[nodiscard]] std::optional<int> registered_number(const PendingTransfer& transfer) const;
  void enqueue(std::size_t slot);
  void prepare(io_uring_sqe& request, const PendingTransfer& transfer);
  void listen_for_wake();
  /// Takes completions that are there. Returns how many transfers have ended.
  std::size_t take(std::span<FinishedTransfer> finished);
  [[nodiscard]] bool any_under_way() const noexcept { return free_.size() < pending_.size(); }

  std::vector<Registered> registered_;  ///< by addresses
  Duration patience_;
  io_uring ring_ = {};
  std::optional<ProcessDescriptor> ring_descriptor_;
  bool woken_ = false;
  std::optional<ProcessDescriptor> event_;  ///< that wake() writes to, and the ring reads
  std::uint64_t event_count_ = 0;
  std::vector<PendingTransfer> pending_;  ///< by slot, which is a request's user data
  std::vector<std::size_t> free_;
};

Status RingQueue::make_ring() {
  // Both spare a thread that computes interrupts, and let none but it submit. Kernels before 6.1
  // know neither.
  constexpr unsigned lean = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  const auto entries = static_cast<unsigned>(depth() + 1);  // one for wake()
  int failed = 0;
  for (const unsigned flags : {lean, 0U}) {
    io_uring_params parameters{};
    parameters.flags = flags;
    failed = io_uring_queue_init_params(entries, &ring_, &parameters);
    if (failed != -EINVAL) break;
  }
  if (failed != 0) return no_ring(-failed);
  ring_descriptor_.emplace(ring_.ring_fd);
  static_cast<void>(io_uring_ring_dontfork(&ring_));  // its memory holds it open, too
  // Waiting with a deadline takes no request then. Kernel 5.11.
  if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) return no_ring(ENOSYS);
  unsigned threads[] = {kernel_threads_max, kernel_threads_max};
  // Kernels before 5.15 have the limits that they have.
  static_cast<void>(io_uring_register_iowq_max_workers(&ring_, threads));
  return {};
}

Status RingQueue::set_up(std::span<const std::span<std::byte>> memory) {
  TERRACE_TRY(make_ring());
  const int event = eventfd(0, EFD_CLOEXEC);
  if (event < 0) return no_ring(errno);
  event_.emplace(event);
  const int descriptor = file().descriptor();
  const int failed = io_uring_register_files(&ring_, &descriptor, 1);
  if (failed != 0) return no_ring(-failed);
  listen_for_wake();
  register_memory(memory);
  return {};
}

/// Registers memory with the kernel. Transfers from memory that a limit on locked memory refuses
/// cost a little more.
void RingQueue::register_memory(std::span<const std::span<std::byte>> memory) {
  std::vector<std::span<std::byte>> pieces;
  for (const std::span<std::byte>& each : memory) {
    for (std::size_t at = 0; at < each.size(); at += registered_max) {
      pieces.push_back(each.subspan(at, std::min(registered_max, each.size() - at)));
    }
  }
  if (pieces.empty()) return;
  std::ranges::sort(pieces, {}, [](const auto& piece) { return piece.data(); });
  const auto count = static_cast<unsigned>(pieces.size());
  const bool one_by_one = io_uring_register_buffers_sparse(&ring_, count) == 0;  // kernel 5.19
  if (!one_by_one) {
    std::vector<iovec> all;
    all.reserve(pieces.size());
    for (const auto& piece : pieces) all.push_back({piece.data(), piece.size()});
    if (io_uring_register_buffers(&ring_, all.data(), count) != 0) return;
  }
  for (unsigned index = 0; index < count; ++index) {
    const iovec piece{pieces[index].data(), pieces[index].size()};
    if (one_by_one &&
        io_uring_register_buffers_update_tag(&ring_, index, &piece, nullptr, 1) != 1) {
      continue;
    }
    registered_.push_back({pieces[index], static_cast<int>(index)});
  }
}

RingQueue::~RingQueue() {
  if (!ring_descriptor_ || ring_descriptor_->get() < 0) return;
  const Deadline deadline(patience_);
  FinishedTransfer ignored;
  while (any_under_way() && deadline.left() > Duration{}) {
    do_reap({&ignored, 1}, deadline.left());
  }
  ring_descriptor_->release();
  io_uring_queue_exit(&ring_);
}

void RingQueue::wake() noexcept {
  // It fails only where the count is at its end: then a read is due anyway.
  static_cast<void>(eventfd_write(event_->get(), 1));
}

void RingQueue::listen_for_wake() {
  io_uring_sqe* const request = io_uring_get_sqe(&ring_);
  TERRACE_ASSERT(request != nullptr);
  io_uring_prep_read(request, event_->get(), &event_count_, sizeof event_count_, 0);
  io_uring_sqe_set_data64(request, wake_mark);
}

void RingQueue::enqueue(std::size_t slot) {
  const PendingTransfer& transfer = pending_[slot];
  io_uring_sqe* const request = io_uring_get_sqe(&ring_);
  TERRACE_ASSERT(request != nullptr);  // a request a slot, and one for wake()
  if (transfer.is_flush()) {
    io_uring_prep_fsync(request, registered_file, IORING_FSYNC_DATASYNC);
  } else {
    prepare(*request, transfer);
  }
  io_uring_sqe_set_flags(request, IOSQE_FIXED_FILE);
  io_uring_sqe_set_data64(request, slot);
}

std::optional<int> RingQueue::registered_number(const PendingTransfer& transfer) const {
  const std::byte* const begin = transfer.data();
  const auto behind = std::ranges::upper_bound(
      registered_, begin, {},
      [](const Registered& each) -> const std::byte* { return each.memory.data(); });
  if (behind == registered_.begin()) return std::nullopt;
  const auto& [memory, number] = *std::prev(behind);
  const bool holds = begin + transfer.bytes() <= memory.data() + memory.size();
  return holds ? std::optional<int>(number) : std::nullopt;
}

void RingQueue::prepare(io_uring_sqe& request, const PendingTransfer& transfer) {
  const auto bytes = static_cast<unsigned>(transfer.bytes());
  const std::optional<int> registered = registered_number(transfer);
  std::byte* const data = transfer.data();
  const std::uint64_t offset = transfer.offset();
  if (transfer.is_read() && registered) {
    io_uring_prep_read_fixed(&request, registered_file, data, bytes, offset, *registered);
  } else if (transfer.is_read()) {
    io_uring_prep_read(&request, registered_file, data, bytes, offset);
  } else if (registered) {
    io_uring_prep_write_fixed(&request, registered_file, data, bytes, offset, *registered);
  } else {
    io_uring_prep_write(&request, registered_file, data, bytes, offset);
  }
}

void RingQueue::do_submit(std::span<const FileTransfer> transfers) {
  std::size_t count = 0;
  for (const FileTransfer& transfer : transfers) {
    const std::size_t slot = free_.back();
    free_.pop_back();
    pending_[slot] = PendingTransfer(transfer);
    enqueue(slot);
    // Where the kernel takes none for now, the next reap() hands them over.
    if (++count % handed_over == 0) static_cast<void>(io_uring_submit(&ring_));
  }
  if (count % handed_over != 0) static_cast<void>(io_uring_submit(&ring_));
}

std::size_t RingQueue::take(std::span<FinishedTransfer> finished) {
  std::size_t count = 0;
  io_uring_cqe* completion = nullptr;
  while (count < finished.size() && io_uring_peek_cqe(&ring_, &completion) == 0) {
    const std::uint64_t mark = io_uring_cqe_get_data64(completion);
    const std::int64_t result = completion->res;
    io_uring_cqe_seen(&ring_, completion);
    if (mark == wake_mark) {
      woken_ = true;
      listen_for_wake();
      continue;
    }
    PendingTransfer& transfer = pending_[mark];
    const std::optional<Status> end = transfer.take(file(), result);
    if (!end) {
      enqueue(mark);
      continue;
    }
    finished[count++] = {.tag = transfer.tag(), .status = *end};
    free_.push_back(mark);
  }
  return count;
}

std::size_t RingQueue::do_reap(std::span<FinishedTransfer> finished, Duration timeout) {
  const Deadline deadline(timeout);
  while (true) {
    const std::size_t count = take(finished);
    if (count > 0 || std::exchange(woken_, false)) return count;
    const Duration left = deadline.left();
    __kernel_timespec some = timespec_of(left);
    io_uring_cqe* completion = nullptr;
    const int outcome = io_uring_submit_and_wait_timeout(&ring_, &completion, 1, &some, nullptr);
    if (outcome == -EINTR) return take(finished);
    if (left == Duration{}) return take(finished);
  }
}

}  // namespace

Result<std::unique_ptr<FileQueue>> open_ring_queue(const StorageFile& file,
                                                   const FileQueueOptions& options) {
  auto queue = std::make_unique<RingQueue>(file, options);
  TERRACE_TRY(queue->set_up(options.memory));
  return queue;
}

}  // namespace terrace::offload
