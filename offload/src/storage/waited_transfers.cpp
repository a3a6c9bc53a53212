#include "waited_transfers.hpp"

#include <algorithm>

namespace terrace::offload {
namespace {

constexpr Duration patience = std::chrono::seconds(60);
/// Blocks of a part: a disk with more is broken, and each may take it seconds.
constexpr std::uint64_t unreadable_max = 64;

Status read(const StorageFile& file, FileQueue& queue, std::uint64_t offset,
            std::span<std::byte> into) {
  return run(file, queue,
             {.direction = FileTransfer::Direction::read,
              .data = into.data(),
              .bytes = into.size(),
              .offset = offset});
}

}  // namespace

FileTransfer write_of(std::uint64_t offset, std::span<std::byte> bytes) {
  return {.direction = FileTransfer::Direction::write,
          .data = bytes.data(),
          .bytes = bytes.size(),
          .offset = offset};
}

Status run(const StorageFile& file, FileQueue& queue, const FileTransfer& transfer) {
  TERRACE_TRY(queue.submit({&transfer, 1}));
  const Deadline deadline(patience);
  FinishedTransfer finished;
  while (deadline.left() > Duration{}) {
    if (queue.reap({&finished, 1}, deadline.left()) == 1) return finished.status;
  }
  return fail(Errc::io_error, "{}: does not answer", file.path());
}

Status read_blocks(const StorageFile& file, FileQueue& queue, const FilePart& part,
                   const std::function<void(std::uint64_t, const ReadBlock&)>& show) {
  const TransferBytes memory(queue, std::min<std::uint64_t>(piece_bytes, part.bytes));
  std::uint64_t unreadable = 0;
  for (std::uint64_t at = 0; at < part.bytes; at += piece_bytes) {
    const auto piece = memory.span().first(std::min<std::uint64_t>(piece_bytes, part.bytes - at));
    const Status whole = read(file, queue, part.begin + at, piece);
    for (std::size_t in = 0; in < piece.size(); in += disk_block) {
      const auto bytes = piece.subspan(in, disk_block);
      Status alone;
      if (!whole) {
        if (queue.in_flight() > 0) return whole;
        alone = read(file, queue, part.begin + at + in, bytes);
        if (!alone && (queue.in_flight() > 0 || ++unreadable > unreadable_max)) return alone;
      }
      show((at + in) / disk_block, alone.map([&] { return std::span<const std::byte>(bytes); }));
    }
  }
  return {};
}

}  // namespace terrace::offload
