// A copy on one stream, a kernel on another, a barrier in it; `missing_event_wait` and
// `missing_barrier` leave out what orders them. Exits with 0 when the sums are right.
#include <cstdio>
#include <string_view>
#include <vector>

#include "cuda_runtime.h"

namespace {

constexpr int threads = 64;
constexpr int blocks = 8;
constexpr int row_length = 256;

/// sums[b] = sum of row b.
__global__ void sum_rows(const float* rows, bool with_barrier, float* sums) {
  __shared__ float partial[threads];
  const float* row = rows + blockIdx.x * row_length;
  float sum = 0;
  for (unsigned i = threadIdx.x; i < row_length; i += blockDim.x) sum += row[i];
  partial[threadIdx.x] = sum;
  if (with_barrier) __syncthreads();
  if (threadIdx.x != threads - 1) return;
  float total = 0;
  for (const float x : partial) total += x;
  sums[blockIdx.x] = total;
}

bool check(cudaError_t error) { return error == cudaSuccess; }

int run(bool with_wait, bool with_barrier) {
  const std::vector<float> source(blocks * row_length, 1.0F);
  const std::size_t bytes = source.size() * sizeof(float);
  void* rows = nullptr;
  void* sums = nullptr;
  cudaStream_t copy = nullptr;
  cudaStream_t compute = nullptr;
  cudaEvent_t copied = nullptr;
  bool ok = check(cudaMalloc(&rows, bytes)) && check(cudaMalloc(&sums, blocks * sizeof(float))) &&
            check(cudaStreamCreateWithPriority(&copy, cudaStreamNonBlocking, 0)) &&
            check(cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, 0)) &&
            check(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
  ok = ok && check(cudaMemcpyAsync(rows, source.data(), bytes, cudaMemcpyDefault, copy));
  ok = ok && check(cudaEventRecord(copied, copy));
  if (with_wait) ok = ok && check(cudaStreamWaitEvent(compute, copied));
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = compute;
  ok = ok && check(cudaLaunchKernelEx(&config, sum_rows, static_cast<const float*>(rows),
                                      with_barrier, static_cast<float*>(sums)));
  ok = ok && check(cudaStreamSynchronize(compute)) && check(cudaStreamSynchronize(copy));
  for (int b = 0; ok && b < blocks; ++b) {
    ok = static_cast<const float*>(sums)[b] == static_cast<float>(row_length);
  }
  static_cast<void>(cudaEventDestroy(copied));
  static_cast<void>(cudaStreamDestroy(copy));
  static_cast<void>(cudaStreamDestroy(compute));
  static_cast<void>(cudaFree(rows));
  static_cast<void>(cudaFree(sums));
  return ok ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view race = count > 1 ? arguments[1] : "none";
  return run(race != "missing_event_wait", race != "missing_barrier");
}
