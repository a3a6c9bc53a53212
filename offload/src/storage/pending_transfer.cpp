#include "pending_transfer.hpp"

#include <cerrno>

#include "terrace/core/file_errors.hpp"

namespace terrace::offload {

std::optional<Status> PendingTransfer::take(const StorageFile& file, std::int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return std::nullopt;
  if (result < 0) {
    const int reason = static_cast<int>(-result);
    return is_read() ? cannot_read(file.path(), reason) : cannot_write(file.path(), reason);
  }
  if (is_flush()) return Status{};
  if (result == 0) {
    return fail(Errc::io_error,
                "{}: ends at byte {}, {} bytes before a transfer does; the file "
                "was cut",
                file.path(), offset(), bytes());
  }
  done_ += static_cast<std::size_t>(result);
  if (bytes() == 0) return Status{};
  return std::nullopt;
}

}  // namespace terrace::offload
