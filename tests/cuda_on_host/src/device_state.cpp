#include "device_state.hpp"

#include "capture.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace cuda_on_host {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

void add(std::atomic<std::uint64_t>& count) { count.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

DeviceState& device_state() {
  static DeviceState* const state = new DeviceState;  // outlives every thread
  return *state;
}

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t DeviceState::enter(const char* function) {
  const std::string_view name = function;
  if (name == "cudaStreamSynchronize" || name == "cudaDeviceSynchronize" ||
      name == "cudaEventSynchronize") {
    add(synchronizations);
  }
  if (name == "cudaMemcpyAsync") add(copy_calls);
  if (name == "cudaMemcpyBatchAsync") add(batch_calls);
  if (name == "cudaEventRecord") add(event_records);
  if (name == "cudaEventQuery") add(event_queries);
  if (name == "cudaStreamWaitEvent") add(stream_waits);
  if (name == "cudaMalloc" || name == "cudaHostRegister" || name == "cudaHostAlloc") {
    add(allocations);
  }
  if (!traits.driver) return cudaErrorInsufficientDriver;
  if (const cudaError_t error = check_broken(); error != cudaSuccess) return error;
  if (const cudaError_t error = check_captures(name); error != cudaSuccess) return error;
  if (!faults_armed.load(std::memory_order_relaxed)) return cudaSuccess;
  run_hook(name);
  const std::scoped_lock lock(mutex);
  const std::uint64_t call = ++calls[std::string(name)];
  const auto [begin, end] = faults.equal_range(name);
  for (auto fault = begin; fault != end; ++fault) {
    if (fault->second.nth == call) return fault->second.error;
  }
  return cudaSuccess;
}

void DeviceState::add_hook(std::string_view function, Hook hook) {
  const std::scoped_lock lock(mutex);
  hooks.emplace(function, std::move(hook));
  faults_armed = true;
}

void DeviceState::run_hook(std::string_view function) {
  std::function<void()> call;
  {
    const std::scoped_lock lock(mutex);
    const auto found = hooks.find(function);
    if (found == hooks.end()) return;
    call = found->second.call;
    if (found->second.once) hooks.erase(found);
  }
  call();
}

cudaError_t DeviceState::check_broken() const {
  const auto error = static_cast<cudaError_t>(broken.load());
  if (error != cudaSuccess) await_rest();
  return error;
}

Device::Device() { set({}); }
Device::~Device() { set({}); }

void Device::set(const DeviceTraits& traits) {
  DeviceState& state = device_state();
  const std::scoped_lock lock(state.mutex);
  state.traits = traits;
  state.faults.clear();
  state.calls.clear();
  state.hooks.clear();
  state.faults_armed = false;
  state.broken = cudaSuccess;
  state.breaking_launch = 0;
  for (auto* count :
       {&state.launches, &state.copy_calls, &state.batch_calls, &state.synchronizations,
        &state.event_records, &state.event_queries, &state.stream_waits, &state.allocations}) {
    count->store(0);
  }
  forget_largest_registration();
}

void Device::fail(std::string_view function, Fault fault) {
  DeviceState& state = device_state();
  const std::scoped_lock lock(state.mutex);
  state.calls.erase(std::string(function));
  state.faults.emplace(function, fault);
  state.faults_armed = true;
}

void Device::at_next(std::string_view function, std::function<void()> call) {
  device_state().add_hook(function, {.call = std::move(call)});
}

void Device::at_each(std::string_view function, std::function<void()> call) {
  device_state().add_hook(function, {.call = std::move(call), .once = false});
}

void Device::break_at_launch(std::uint64_t nth, cudaError_t error) {
  device_state().breaking_error = error;
  device_state().breaking_launch = nth;
}

DeviceCounts Device::counts() const {
  const DeviceState& state = device_state();
  return {.launches = state.launches,
          .copy_calls = state.copy_calls,
          .batch_calls = state.batch_calls,
          .synchronizations = state.synchronizations,
          .event_records = state.event_records,
          .event_queries = state.event_queries,
          .stream_waits = state.stream_waits,
          .allocations = state.allocations,
          .registered_bytes = registered_bytes(),
          .largest_registration = largest_registration()};
}

}  // namespace cuda_on_host

using cuda_on_host::device_state;

cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_on_host::last_error;
  cuda_on_host::last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    default:
      return "cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = device_state().traits.driver ? device_state().traits.driver_version : 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  CUDA_ON_HOST_ENTER("cudaGetDeviceCount");
  *count = device_state().traits.device_count;
  return cuda_on_host::report(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  CUDA_ON_HOST_ENTER("cudaSetDevice");
  const bool there = device >= 0 && device < device_state().traits.device_count;
  if (there) cuda_on_host::current_device = device;
  return cuda_on_host::report(there ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  CUDA_ON_HOST_ENTER("cudaGetDevice");
  *device = cuda_on_host::current_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  CUDA_ON_HOST_ENTER("cudaDeviceGetAttribute");
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 8;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      *value = device_state().traits.host_pointers_of_registered ? 1 : 0;
      return cudaSuccess;
    case cudaDevAttrHostNumaId:
      *value = -1;
      return cudaSuccess;
  }
  return cuda_on_host::report(cudaErrorInvalidValue);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  CUDA_ON_HOST_ENTER("cudaGetDeviceProperties");
  *properties = {"stand-in on the host", device_state().traits.memory_bytes};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  CUDA_ON_HOST_ENTER("cudaDeviceGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int /*device*/) {
  CUDA_ON_HOST_ENTER("cudaDeviceGetPCIBusId");
  std::strncpy(text, "0000:00:00.0", static_cast<std::size_t>(size));
  return cudaSuccess;
}
