#include "terrace/offload/file_queue.hpp"

#include "ring_queue.hpp"
#include "threaded_queue.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t depth_max = 4096;
constexpr std::size_t transfer_bytes_max = std::size_t{1} << 30;

bool is_aligned(std::uint64_t number) noexcept { return number % StorageFile::alignment == 0; }

Status check(const FileTransfer& transfer, const StorageFile& file) {
  if (transfer.direction == FileTransfer::Direction::flush) return {};
  if (transfer.direction != FileTransfer::Direction::read &&
      transfer.direction != FileTransfer::Direction::write) {
    return fail(Errc::invalid_argument, "{}: a transfer has no direction of number {}", file.path(),
                static_cast<int>(transfer.direction));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(transfer.data);
  if (address == 0 || transfer.bytes == 0 || transfer.bytes > transfer_bytes_max ||
      !is_aligned(address) || !is_aligned(transfer.bytes) || !is_aligned(transfer.offset)) {
    return fail(Errc::invalid_argument,
                "{}: a transfer of {} bytes at {} is not made of whole blocks of {} bytes, in the "
                "file and in memory",
                file.path(), transfer.bytes, transfer.offset, StorageFile::alignment);
  }
  if (transfer.offset > file.bytes() || transfer.bytes > file.bytes() - transfer.offset) {
    return fail(Errc::invalid_argument, "{}: a transfer of {} bytes at {} ends beyond its {} bytes",
                file.path(), transfer.bytes, transfer.offset, file.bytes());
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<FileQueue>> FileQueue::open(const StorageFile& file,
                                                   const FileQueueOptions& options) {
  if (options.depth == 0 || options.depth > depth_max) {
    return fail(Errc::invalid_argument, "{}: its depth {} is not between 1 and {}", file.path(),
                options.depth, depth_max);
  }
  if (options.engine == FileEngine::threads) return open_threaded_queue(file, options);
  auto ring = open_ring_queue(file, options);
  if (ring || options.engine == FileEngine::io_uring) return ring;
  return open_threaded_queue(file, options);
}

Status FileQueue::submit(std::span<const FileTransfer> transfers) {
  if (transfers.size() > depth_ - in_flight_) {
    return fail(Errc::out_of_memory, "{}: {} transfers are under way; {} more go beyond {}",
                file_.path(), in_flight_, transfers.size(), depth_);
  }
  for (const FileTransfer& transfer : transfers) TERRACE_TRY(check(transfer, file_));
  do_submit(transfers);
  in_flight_ += transfers.size();
  return {};
}

std::size_t FileQueue::reap(std::span<FinishedTransfer> finished, Duration timeout) {
  const std::size_t count = do_reap(finished, timeout);
  in_flight_ -= count;
  return count;
}

}  // namespace terrace::offload
