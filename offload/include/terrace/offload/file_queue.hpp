// Asynchronous reads and writes of one file.
//
//   TERRACE_ASSIGN(auto queue, FileQueue::open(file, {.depth = 32}));
//   TERRACE_TRY(queue->submit(transfers));
//   TERRACE_ASSIGN(const std::size_t count, queue->reap(finished, std::chrono::seconds(1)));
//
// Transfers end in any order, also two transfers that touch the same bytes: a caller that needs an
// order waits for the first one to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "terrace/core/clock.hpp"
#include "terrace/core/result.hpp"
#include "terrace/offload/storage_file.hpp"

namespace terrace::offload {

/// One piece of a file. Its memory is the queue's from submit() until it has been reaped.
struct FileTransfer {
  /// A flush moves nothing: what was written before it was submitted outlasts the machine's end
  /// once it has ended. Its tag alone counts.
  enum class Direction : std::uint8_t { read, write, flush };

  Direction direction = Direction::read;
  std::byte* data = nullptr;  ///< StorageFile::alignment
  std::size_t bytes = 0;      ///< multiple of StorageFile::alignment, at most 1 GiB
  std::uint64_t offset = 0;   ///< in the file; multiple of StorageFile::alignment
  std::uint64_t tag = 0;      ///< chosen by the caller; identifies the finished transfer
  /// Where the queue keeps transfers back, this one begins after all other waiting transfers.
  bool is_background = false;
};

struct FinishedTransfer {
  std::uint64_t tag = 0;
  /// Errors: io_error with the errno: the system's, or 0 where the file ended before the transfer.
  Status status = {};
};

/// The part of the system that carries transfers out.
enum class FileEngine : std::uint8_t {
  best,      ///< io_uring, and threads where the system has none for this process
  io_uring,  ///< with at most 4 threads of the kernel. Errors of open(): unsupported, with the
             ///< reason
  threads,   ///< each by pread and pwrite
};

struct FileQueueOptions {
  FileEngine engine = FileEngine::best;
  std::size_t depth = 64;  ///< transfers under way, 1 to 4096
  /// Memory that transfers use, which the kernel is told of once instead of with each, and keeps
  /// locked: transfers that lie in one of these, in one of its pieces of 1 GiB, cost less. It must
  /// outlive the queue. FileQueue::registered_bytes() says how much was taken.
  std::vector<std::span<std::byte>> memory = {};
  /// How long the queue's end waits for transfers that are under way: a device that does not answer
  /// may write to their memory after that. Threads wait as long as the device takes.
  Duration patience = std::chrono::seconds(60);
};

/// Threads  the thread that opened the queue makes all calls and destroys it; any thread may call
///          wake(); a child of fork() makes no call, for it has neither ring nor threads
class FileQueue {
 public:
  /// Opens a queue of a file, which must outlive it.
  ///
  /// Errors   invalid_argument: a depth out of range; unsupported: the engine is not available;
  ///          out_of_memory: no threads are left
  [[nodiscard]] static Result<std::unique_ptr<FileQueue>> open(const StorageFile& file,
                                                               const FileQueueOptions& options);

  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;
  virtual ~FileQueue() = default;

  /// Returns "io_uring" or "threads".
  [[nodiscard]] virtual std::string_view engine() const noexcept = 0;

  /// Returns how much of FileQueueOptions::memory the kernel was told of: all, or less where a
  /// limit on locked memory (RLIMIT_MEMLOCK) or an old kernel refuses; by threads, nothing.
  [[nodiscard]] virtual std::size_t registered_bytes() const noexcept { return 0; }

  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }

  /// Starts transfers, all or none.
  ///
  /// Errors   out_of_memory: more than depth() would be under way; invalid_argument: one has no
  ///          direction, is not aligned as FileTransfer says, or goes beyond the end that the file
  ///          had when it was opened
  [[nodiscard]] Status submit(std::span<const FileTransfer> transfers);

  /// Waits until a transfer has ended, and returns how many of `finished` are filled in: none at
  /// the deadline, after wake() or a signal.
  [[nodiscard]] std::size_t reap(std::span<FinishedTransfer> finished, Duration timeout);

  /// Ends a reap() that waits, or the next one that would.
  virtual void wake() noexcept = 0;

 protected:
  FileQueue(const StorageFile& file, std::size_t depth) : file_(file), depth_(depth) {}
  [[nodiscard]] const StorageFile& file() const noexcept { return file_; }

 private:
  virtual void do_submit(std::span<const FileTransfer> transfers) = 0;
  virtual std::size_t do_reap(std::span<FinishedTransfer> finished, Duration timeout) = 0;

  const StorageFile& file_;
  std::size_t depth_;
  std::size_t in_flight_ = 0;
};

}  // namespace terrace::offload
