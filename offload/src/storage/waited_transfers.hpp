// Synchronous transfers, by a queue that has no other transfers under way.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "container_layout.hpp"
#include "terrace/offload/aligned_bytes.hpp"
#include "terrace/offload/file_queue.hpp"

namespace terrace::offload {

/// Memory of such transfers: one that has not ended keeps it for ever.
class TransferBytes {
 public:
  TransferBytes(const FileQueue& queue, std::size_t bytes) : queue_(queue), memory_(bytes) {}
  TransferBytes(const TransferBytes&) = delete;
  TransferBytes& operator=(const TransferBytes&) = delete;
  ~TransferBytes() {
    if (queue_.in_flight() > 0) memory_.abandon();
  }
  [[nodiscard]] std::span<std::byte> span() const noexcept { return memory_.span(); }

 private:
  const FileQueue& queue_;
  AlignedBytes memory_;
};

[[nodiscard]] FileTransfer write_of(std::uint64_t offset, std::span<std::byte> bytes);

/// Has the queue carry out a transfer. Errors: the disk's; io_error: it does not answer for a
/// minute, and the transfer is still under way.
[[nodiscard]] Status run(const StorageFile& file, FileQueue& queue, const FileTransfer& transfer);

/// A block, or why the disk cannot read it.
using ReadBlock = Result<std::span<const std::byte>>;

/// Shows each block of a part, in order. Errors: the disk cannot read many of them, or does not
/// answer.
[[nodiscard]] Status read_blocks(const StorageFile& file, FileQueue& queue, const FilePart& part,
                                 const std::function<void(std::uint64_t, const ReadBlock&)>& show);

}  // namespace terrace::offload
