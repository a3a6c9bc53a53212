// The device of a backend, and memory on it that has what memory of the host has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "terrace/core/backend.hpp"
#include "terrace/core/clock.hpp"

namespace terrace::bench {

using MakeBackend = std::function<Result<std::unique_ptr<Backend>>()>;

/// Memory is given back with the object.
///
/// Threads  one at a time
class MeasuredDevice {
 public:
  /// `patience`: longest wait for the device.
  static Result<std::shared_ptr<MeasuredDevice>> create(const MakeBackend& make, Duration patience);
  ~MeasuredDevice();
  MeasuredDevice(const MeasuredDevice&) = delete;
  MeasuredDevice& operator=(const MeasuredDevice&) = delete;

  [[nodiscard]] const Ops& ops() const noexcept { return backend_->ops(); }
  [[nodiscard]] Queue& queue() noexcept { return *queue_; }
  [[nodiscard]] Status wait(Ticket ticket) { return queue_->wait(ticket, patience_); }

  /// Returns memory of the device, all zeros.
  template <typename T>
  Result<T*> room_for(std::size_t count) {
    TERRACE_ASSIGN(std::byte* const data, allocate(count * sizeof(T), Tier::device));
    TERRACE_TRY(clear(data, count * sizeof(T)));
    return reinterpret_cast<T*>(data);
  }
  /// Returns memory of the device with a copy of the host's.
  template <typename T>
  Result<T*> copy_of(std::span<const T> host) {
    TERRACE_ASSIGN(std::byte* const data, allocate(host.size_bytes(), Tier::device));
    TERRACE_TRY(write(data, std::as_bytes(host)));
    return reinterpret_cast<T*>(data);
  }
  /// Returns memory of the host that the device reaches, with a copy of other memory.
  template <typename T>
  Result<T*> reachable_copy_of(std::span<const T> host) {
    TERRACE_ASSIGN(std::byte* const data, allocate(host.size_bytes(), Tier::host));
    std::ranges::copy(std::as_bytes(host), data);
    return reinterpret_cast<T*>(data);
  }
  template <typename T>
  Result<T*> copy_of(const std::vector<T>& host) {
    return copy_of(std::span<const T>(host));
  }
  /// Reads memory of the device and leaves zeros there, so that nobody reads the same once more.
  template <typename T>
  Status take(T* source, std::span<T> host) {
    auto* const bytes = reinterpret_cast<std::byte*>(source);
    TERRACE_TRY(read(bytes, std::as_writable_bytes(host)));
    return clear(bytes, host.size_bytes());
  }

 private:
  MeasuredDevice(std::unique_ptr<Backend> backend, std::unique_ptr<Queue> queue,
                 Duration patience) noexcept
      : backend_(std::move(backend)), queue_(std::move(queue)), patience_(patience) {}

  Result<std::byte*> allocate(std::size_t bytes, Tier tier);
  Status clear(std::byte* target, std::size_t bytes);
  Status write(std::byte* target, std::span<const std::byte> host);
  Status read(const std::byte* source, std::span<std::byte> host);
  Status copy(std::byte* target, const std::byte* source, std::size_t bytes);

  std::unique_ptr<Backend> backend_;
  std::vector<Buffer> buffers_;
  Buffer staging_;  ///< memory that the device reaches, for copies
  std::unique_ptr<Queue> queue_;
  Duration patience_;
};

}  // namespace terrace::bench
