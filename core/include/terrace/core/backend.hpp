// A backend: one device's memory, queues and kernels. `host` is always there and is the
// specification; the others must agree with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/core/queue.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/tier.hpp"

namespace terrace {

class Backend;

struct AllocationRequest {
  std::size_t bytes = 0;
  std::size_t alignment = 64;  ///< a power of two
  Tier tier = Tier::device;    ///< device or host (pinned where the backend can)
  Purpose purpose = Purpose::kv;
};

/// Memory of a backend; gives itself back. The backend must outlive it.
class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(Backend& owner, std::byte* data, const AllocationRequest& request) noexcept
      : owner_(&owner), data_(data), request_(request) {}
  Buffer(Buffer&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        request_(std::exchange(other.request_, {.bytes = 0})) {}
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { reset(); }

  void reset() noexcept;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return request_.bytes; }
  explicit operator bool() const noexcept { return data_ != nullptr; }

  /// Returns the memory as an array of T.
  template <typename T>
  [[nodiscard]] T* as() const noexcept {
    return reinterpret_cast<T*>(data_);
  }

 private:
  Backend* owner_ = nullptr;
  std::byte* data_ = nullptr;
  AllocationRequest request_{.bytes = 0};
};

struct Capabilities {
  bool host_reads_device = false;            ///< device pointers may be dereferenced by the host
  bool pinned_host = false;                  ///< host memory of `allocate` is page-locked
  std::optional<std::uint32_t> host_node{};  ///< NUMA node it is placed on; none = first touch
};

/// Bytes a backend holds in one tier, counted where they are allocated.
struct MemoryUsage {
  std::size_t in_use = 0;
  std::size_t peak = 0;
  std::size_t limit = 0;  ///< SIZE_MAX when unlimited
};

struct QueueOptions {
  std::string name = {};
  bool high_priority = false;
  /// Queues of one lane share a thread, which runs their work in turn. On a device queue that
  /// thread runs host functions, and work that follows them or follows work of a host queue; the
  /// thread that enqueues submits all other work to the device itself. Each keeps its own order and
  /// its own failures. Empty = a thread for this queue, where it needs one.
  std::string lane = {};
};

/// Threads  allocate, release, make_queue and the getters from any thread
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual Capabilities capabilities() const noexcept = 0;
  [[nodiscard]] virtual const Ops& ops() const noexcept = 0;
  [[nodiscard]] virtual const Clock& clock() const noexcept = 0;

  /// The threads that act as the device's compute units if kernels run on the host.
  [[nodiscard]] virtual Parallel& device_threads() noexcept = 0;

  /// Allocates memory of a tier. Not initialised (filled with NaN bytes in builds without NDEBUG).
  ///
  /// Errors   out_of_memory: over the tier's limit, naming limit, in use and wanted;
  ///          invalid_argument: zero bytes, alignment no power of two, a tier this backend lacks
  [[nodiscard]] Result<Buffer> allocate(const AllocationRequest& request);

  /// Makes a queue on the device. The backend must outlive it.
  [[nodiscard]] virtual Result<std::unique_ptr<Queue>> make_queue(const QueueOptions& options) = 0;

  /// Makes a queue for host work that needs no device (clustering); copies on it are host to host.
  /// Tickets of both kinds of queue can wait for each other. The backend must outlive it.
  [[nodiscard]] virtual Result<std::unique_ptr<Queue>> make_host_queue(
      const QueueOptions& options) = 0;

  [[nodiscard]] virtual MemoryUsage memory(Tier tier) const noexcept = 0;

  /// Sets a tier's limit, SIZE_MAX for none. Memory that is in use beyond the limit stays
  /// in use, and no more is allocated meanwhile.
  virtual void set_limit(Tier tier, std::size_t bytes) noexcept = 0;

  /// Starts a new peak at what is in use now.
  virtual void reset_peak() noexcept = 0;

 private:
  friend class Buffer;
  virtual Result<std::byte*> do_allocate(const AllocationRequest& request) = 0;
  virtual void do_release(std::byte* data, const AllocationRequest& request) noexcept = 0;
};

}  // namespace terrace
