// The calls of a batch, as one launch takes them: their arguments by value, in the parameters of
// the kernel.
//
//   template <unsigned capacity>
//   __global__ void scale(const Calls<Scale, capacity> __grid_constant__ calls) {
//     const Scale& op = calls.of_block();       // and on as for one call; its z is calls.part()
//   }
//   return launch_calls(batch, [&]<unsigned capacity>(const Calls<Scale, capacity>& calls) {
//     return launch_kernel(launch, {calls.grid(tiles), threads}, "scale", scale<capacity>, calls);
//   });
//
// A grid is for the longest call of a launch. Blocks that a shorter one has no use for return
// before any barrier.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "terrace/core/result.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::kernels::cuda {

/// A kernel takes it as a __grid_constant__: no thread has a copy of it.
template <typename Arguments, unsigned capacity>
struct Calls {
  Arguments each[capacity];
  unsigned count = 0;

  /// The calls follow each other in z, with `parts` blocks each.
  [[nodiscard]] dim3 grid(unsigned x, unsigned y = 1, unsigned parts = 1) const {
    return {x, y, parts * count};
  }
  [[nodiscard]] std::span<const Arguments> all() const { return {each, count}; }

  /// Returns a number for the longest of the calls: the largest that of(call)
  /// returns.
  template <typename Of>
  [[nodiscard]] auto largest(Of of) const {
    auto most = of(each[0]);
    for (const Arguments& call : all()) most = std::max(most, of(call));
    return most;
  }

  /// The number of the block's call; of one call alone it is known when the
  /// kernel is compiled.
  [[nodiscard]] __device__ unsigned call() const {
    return capacity == 1 ? 0 : blockIdx.z / (gridDim.z / count);
  }
  [[nodiscard]] __device__ const Arguments& of_block() const { return each[call()]; }
  /// Which of its call's blocks along z the block is.
  [[nodiscard]] __device__ unsigned part() const {
    return capacity == 1 ? blockIdx.z : blockIdx.z % (gridDim.z / count);
  }
};

/// Calls launch_some(calls) for all of a batch, make(element) being an
/// element's arguments: once for one element, which takes no more room than it
/// needs, else once for as many as fit.
template <typename Element, typename Make, typename LaunchSome>
Status launch_calls(std::span<const Element> batch, Make make, LaunchSome launch_some) {
  using Arguments = decltype(make(batch.front()));
  if (batch.size() == 1) return launch_some(Calls<Arguments, 1>{{make(batch.front())}, 1});
  constexpr unsigned capacity = calls_per_launch(sizeof(Arguments));
  Calls<Arguments, capacity> calls;
  while (!batch.empty()) {
    calls.count = static_cast<unsigned>(std::min<std::size_t>(batch.size(), capacity));
    std::ranges::transform(batch.first(calls.count), calls.each, make);
    TERRACE_TRY(launch_some(calls));
    batch = batch.subspan(calls.count);
  }
  return {};
}

template <typename Arguments, typename LaunchSome>
Status launch_calls(std::span<const Arguments> batch, LaunchSome launch_some) {
  return launch_calls(batch, [](const Arguments& call) { return call; }, launch_some);
}

}  // namespace terrace::kernels::cuda
