// Words in device memory that are zero until an op writes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "terrace/core/backend.hpp"
#include "terrace/core/queue.hpp"

namespace terrace {

/// Threads  one at a time
class DeviceWords {
 public:
  /// Bytes on the host that so many bytes are zeroed from.
  [[nodiscard]] static constexpr std::size_t zero_bytes_for(std::size_t bytes) noexcept {
    return std::min<std::size_t>(bytes, std::size_t{64} << 10);
  }

  [[nodiscard]] std::uint32_t* data() const noexcept { return words_.as<std::uint32_t>(); }
  [[nodiscard]] std::size_t count() const noexcept {
    return words_.bytes() / sizeof(std::uint32_t);
  }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(words_); }

  /// Makes it `count` words long, which must not be fewer; those that are there stay as they are.
  /// Waits for `queue`. No other work may use the words. Errors: out_of_memory, not_ready, those of
  /// queues; nothing has changed then.
  Status grow(Backend& backend, Queue& queue, std::size_t count, Duration deadline);

  /// Has what clear() needs on the host. Errors: out_of_memory.
  Status prepare_zeros(Backend& backend);
  /// Enqueues zeros for all words, which are prepared. Errors: those of queues.
  Result<Ticket> clear(Queue& queue);
  /// Zeros have been written: gives back the memory that they came from.
  void release_zeros() noexcept { zeros_.reset(); }

  void reset() noexcept;

 private:
  Buffer words_;
  Buffer zeros_;                   ///< on the host
  std::vector<Buffer> abandoned_;  ///< that copies past their deadline may still use
};

}  // namespace terrace
