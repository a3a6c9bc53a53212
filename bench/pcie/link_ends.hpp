// A backend's link with memory at both ends of it, and ways to move what lies there.
//
//   TERRACE_ASSIGN(const auto ends, LinkEnds::create(std::move(backend), bytes));
//   TERRACE_ASSIGN(const Work copy, ends->piece(Direction::host_to_device, 1 << 20));
//   Contender alone = contender(copy);
//
// Bytes that arrived are checked, and then spoilt, so that the next run cannot pass by doing
// nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "harness/question.hpp"
#include "pcie/driver_memory.hpp"
#include "terrace/core/backend.hpp"

namespace terrace::bench {

enum class Direction : std::uint8_t { host_to_device, device_to_host };
std::string_view to_string(Direction direction) noexcept;

/// By what rows are moved.
enum class Method : std::uint8_t {
  copies,  ///< a batch of copies
  kernel,  ///< the gather that a decode step fetches with
};

/// Memory of the host.
enum class HostEnd : std::uint8_t {
  locked,    ///< the backend's: mapped, touched and locked by it
  pageable,  ///< what `new` gives
  driver,    ///< what the device's driver gives, see driver_memory.hpp
};

/// Returns how much of `bytes` a run moves in rows of `row_bytes`: a quarter, a row at least.
std::size_t moved_bytes(std::size_t bytes, std::size_t row_bytes) noexcept;

/// Work of a backend's queues: it is started, goes on by itself, and is waited for.
struct Work {
  double bytes = 0;  ///< that it moves
  std::function<void()> start;
  std::function<void()> finish;    ///< waits for all that was started
  std::function<Status()> verify;  ///< checks the result; called after finish
};

/// Times work alone.
Contender contender(const Work& work);

/// Times work while `other` goes on, which is started as often as that takes.
///
/// Errors   what either reports when it is tried
Result<Contender> contender_beside(const Work& work, const Work& other);

/// Threads  one at a time
class LinkEnds : public std::enable_shared_from_this<LinkEnds> {
 public:
  /// Takes memory for `bytes` each way at both ends and fills the sources.
  ///
  /// Errors   out_of_memory; what the backend reports
  static Result<std::shared_ptr<LinkEnds>> create(std::unique_ptr<Backend> backend,
                                                  std::size_t bytes);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// `bytes` in one piece. Errors: unsupported where there is no such memory.
  Result<Work> piece(Direction direction, std::size_t bytes, HostEnd host = HostEnd::locked);

  /// moved_bytes() of what there is, in rows that lie side by side on the device and as a selection
  /// has them on the host (row_places.hpp), or side by side there, too.
  Result<Work> rows(Direction direction, Method method, std::size_t row_bytes,
                    bool scattered = true);

  /// Attention of one token over a cache of 32 MiB on the device.
  Result<Work> attention();

 private:
  class Transfer;
  class Attention;
  explicit LinkEnds(std::unique_ptr<Backend> backend, std::size_t bytes);
  Status allocate();
  /// Memory of the host that holds what host_source_ holds; made when it is first asked for.
  Result<std::byte*> host_end(HostEnd host);

  /// Copies at once and waits.
  Status copy(std::byte* target, const std::byte* source, std::size_t bytes);
  /// Returns device memory with the content of `values`.
  template <typename T>
  Result<Buffer> upload(std::span<const T> values);

  std::unique_ptr<Backend> backend_;
  std::size_t bytes_;
  Buffer host_source_;
  Buffer host_target_;
  Buffer check_;          ///< host memory where what is on the device is looked at
  Buffer device_source_;  ///< holds what host_source_ holds
  Buffer device_target_;
  std::vector<std::byte> pageable_;
  DriverMemory from_driver_;
  std::unique_ptr<Queue> towards_device_;
  std::unique_ptr<Queue> towards_host_;
  std::unique_ptr<Queue> compute_;
};

}  // namespace terrace::bench
