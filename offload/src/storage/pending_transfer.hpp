// A transfer that the system carries out in one piece or in several.
#pragma once

#include <optional>

#include "terrace/offload/file_queue.hpp"

namespace terrace::offload {

class PendingTransfer {
 public:
  PendingTransfer() = default;
  explicit PendingTransfer(const FileTransfer& transfer) noexcept : transfer_(transfer) {}

  [[nodiscard]] bool is_read() const noexcept {
    return transfer_.direction == FileTransfer::Direction::read;
  }
  [[nodiscard]] bool is_flush() const noexcept {
    return transfer_.direction == FileTransfer::Direction::flush;
  }
  [[nodiscard]] std::uint64_t tag() const noexcept { return transfer_.tag; }

  /// The part that is still to be moved.
  [[nodiscard]] std::byte* data() const noexcept { return transfer_.data + done_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return transfer_.bytes - done_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return transfer_.offset + done_; }

  /// Takes what the system says of that part: a number of bytes (a flush's is 0), or a negative
  /// errno. Returns how
  /// the transfer has ended; nothing where the system is to be asked again.
  [[nodiscard]] std::optional<Status> take(const StorageFile& file, std::int64_t result);

 private:
  FileTransfer transfer_ = {};
  std::size_t done_ = 0;
};

}  // namespace terrace::offload
