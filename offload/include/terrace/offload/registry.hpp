// Backends by name: what was compiled in, and which one a name means.
//
//   auto chosen = make_backend(config.text("backend"), BackendOptions::from(config));
//   log(chosen->choice.name, chosen->choice.reason);  // "host", "auto: this build has no CUDA ..."
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/backend.hpp"
#include "terrace/core/config.hpp"
#include "terrace/offload/caller_queue.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"
#include "terrace/offload/host_backend.hpp"

namespace terrace::offload {

struct BackendOptions {
  HostBackendOptions host{};
  CudaBackendOptions cuda{};

  /// Reads the keys of a resolved config that are about a backend: limits of memory, threads, the
  /// link that the host backend imitates, huge pages, NUMA placement, the deadline. A container's
  /// limit and a machine profile are not looked at.
  [[nodiscard]] static BackendOptions from(const Config& config);
};

/// Which backend a name led to.
struct BackendChoice {
  std::string_view name = {};  ///< host or cuda; static
  std::string reason = {};     ///< why this one
  std::string device = {};     ///< its name; empty where the host computes
};

struct ChosenBackend {
  std::unique_ptr<Backend> backend = {};
  BackendChoice choice = {};
};

struct BackendInfo {
  std::string_view name = {};  ///< static
  bool available = false;
  std::string reason = {};  ///< what it is, or why it is not available
};

/// Makes the backend that `name` (auto, host or cuda) means. Never another one: auto takes the host
/// only where CUDA cannot be used at all (unsupported); a device that is there and fails is an
/// error. Objects that `options` points to (clocks, observers) must outlive the
/// backend.
///
/// Errors   invalid_argument: no such name; unsupported: not compiled in, or no device; else what
///          making it reports
[[nodiscard]] Result<ChosenBackend> make_backend(std::string_view name,
                                                 const BackendOptions& options);

/// Makes a queue of a stream of CUDA (a cudaStream_t), as wrap_queue (cuda/wrap_queue.hpp) does,
/// for callers that are compiled with and without CUDA.
///
/// Errors   unsupported: this build has no CUDA; else those of wrap_queue
[[nodiscard]] Result<std::unique_ptr<Queue>> wrap_stream(Backend& backend, void* stream,
                                                         const CallerQueueOptions& options);

/// Every backend Terrace knows, in the order of `auto`'s preference. Whether there is a device
/// for it is looked up anew.
[[nodiscard]] std::vector<BackendInfo> list_backends();

}  // namespace terrace::offload
