#include "capture.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "device_state.hpp"
#include "stream.hpp"

struct CUgraph_st {};

namespace cuda_on_host {
namespace {

struct Capture {
  cudaStream_t stream = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread{};
  bool valid = true;
};

/// Looked at by every call to the device: the count alone, without the mutex, as long as no stream
/// is captured, so that it orders no threads.
struct Captures {
  std::atomic<std::size_t> count{0};
  std::mutex mutex;  ///< guards all
  std::vector<Capture> all;
};

Captures& captures() {
  static Captures* const captures = new Captures;  // outlives every thread
  return *captures;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/// Calls that no stream sees, or that wait for one or ask how far it is. CUDA names cudaMalloc as
/// an example, and has no list: these are all that may be meant.
bool is_unsafe(std::string_view function) {
  constexpr std::array names{"cudaMalloc",           "cudaFree",
                             "cudaHostAlloc",        "cudaFreeHost",
                             "cudaHostRegister",     "cudaHostUnregister",
                             "cudaMemset",           "cudaStreamDestroy",
                             "cudaEventQuery",       "cudaEventSynchronize",
                             "cudaEventElapsedTime", "cudaStreamSynchronize",
                             "cudaDeviceSynchronize"};
  return std::ranges::find(names, function) != names.end();
}

/// The rule of cudaThreadExchangeStreamCaptureMode.
bool forbids(const Capture& capture) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return thread_mode == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

}  // namespace

cudaError_t check_captures(std::string_view function) {
  if (captures().count.load(std::memory_order_relaxed) == 0 || !is_unsafe(function)) {
    return cudaSuccess;
  }
  bool forbidden = false;
  const std::scoped_lock lock(captures().mutex);
  for (Capture& each : captures().all) {
    if (!forbids(each)) continue;
    each.valid = false;
    forbidden = true;
  }
  return forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

bool is_capturing(cudaStream_t stream) {
  if (captures().count.load(std::memory_order_relaxed) == 0) return false;
  const std::scoped_lock lock(captures().mutex);
  return std::ranges::any_of(captures().all,
                             [&](const Capture& each) { return each.stream == stream; });
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  CUDA_ON_HOST_ENTER("cudaStreamBeginCapture");
  if (is_default(stream) || is_capturing(stream)) return report(cudaErrorInvalidValue);
  const std::scoped_lock lock(captures().mutex);
  captures().all.push_back({stream, mode, std::this_thread::get_id()});
  captures().count.store(captures().all.size());
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  CUDA_ON_HOST_ENTER("cudaStreamEndCapture");
  const std::scoped_lock lock(captures().mutex);
  const auto capture = std::ranges::find(captures().all, stream, &Capture::stream);
  if (capture == captures().all.end()) return report(cudaErrorInvalidValue);
  const bool valid = capture->valid;
  captures().all.erase(capture);
  captures().count.store(captures().all.size());
  *graph = valid ? new CUgraph_st : nullptr;
  return valid ? cudaSuccess : report(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}
