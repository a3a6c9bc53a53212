// Finding selected rows, one KV head a block: see terrace/kernels/cuda/ops.hpp.
//
// An entry of `seen` is seen_epoch + 1 + the place of the staging row, and the epoch passes as many
// places with each call: so an entry is of this call exactly if it is above the epoch, and nobody
// has to know how many misses other heads have.
#include <cuda_runtime.h>

#include "device/block_scan.cuh"
#include "device/launch_kernel.cuh"
#include "device/row_place.cuh"
#include "terrace/kernels/cuda/ops.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;

/// Words that a queue lends.
struct Scratch {
  std::uint32_t* misses;  ///< of all blocks so far
  std::uint32_t* ended_blocks;
};

/// One block's work.
struct HeadResolver {
  const ResolveRows& op;
  Scratch scratch;
  bool remembers;       ///< whether lists of this head may want the same row
  std::uint32_t epoch;  ///< entries of `seen` up to it are old

  [[nodiscard]] __device__ std::uint32_t* seen(std::uint32_t position) const {
    return op.seen + static_cast<std::size_t>(blockIdx.x) * op.seen_stride + position;
  }

  /// Finds the row at a place of a list. Returns whether it is missed, and by nobody before.
  __device__ bool find(std::size_t place, std::uint32_t position) const {
    std::byte* row = row_place(op.shape, op.resident, blockIdx.x, position);
    if (row == nullptr && op.cached.numbers != nullptr) {
      const std::uint32_t number = *cached_number(op.shape, op.cached, blockIdx.x, position);
      if (number != 0) row = cached_place(op.shape, op.cached, number);
    }
    bool missed = false;
    if (row == nullptr) {
      const std::uint32_t entry = remembers ? *seen(position) : 0;
      missed = !remembers || entry <= epoch;
      const std::size_t staged = missed ? place : std::size_t{entry} - epoch - 1;
      row = op.staging + staged * op.shape.row_bytes();
      if (missed && remembers) *seen(position) = epoch + 1 + static_cast<std::uint32_t>(place);
    }
    op.rows[place] = row;
    return missed;
  }
};

/// Places that the lists have together: what the epoch passes with each call.
__host__ __device__ constexpr std::uint32_t places_of(const ResolveRows& op) {
  const std::size_t lists =
      op.scope == ListScope::query_head ? op.shape.query_heads : op.shape.kv_heads;
  return static_cast<std::uint32_t>(lists * op.id_stride);
}

/// Lets the block that ends last publish the counts and set the scratch words back.
__device__ void end_block(const HeadResolver& resolver) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  const std::uint32_t before = atomicAdd(resolver.scratch.ended_blocks, 1U);
  if (before + 1 != gridDim.x) return;
  *resolver.op.missed_count = atomicAdd(resolver.scratch.misses, 0U);
  *resolver.scratch.misses = 0;
  *resolver.scratch.ended_blocks = 0;
  if (resolver.remembers) *resolver.op.seen_epoch = resolver.epoch + places_of(resolver.op);
}

__global__ void resolve(ResolveRows op, Scratch scratch) {
  __shared__ BlockScan<threads>::Shared scan_shared;
  __shared__ std::uint32_t reserved;
  BlockScan<threads> scan(scan_shared);
  const bool per_query_head = op.scope == ListScope::query_head;
  HeadResolver resolver{op, scratch, per_query_head && op.seen != nullptr, 0};
  if (resolver.remembers) {
    resolver.epoch = *op.seen_epoch;
    if (0xffffffffU - resolver.epoch <= places_of(op)) {  // near its end: all entries are old
      resolver.epoch = 0;
      const auto positions = static_cast<std::uint32_t>(op.seen_stride);
      for (std::uint32_t p = threadIdx.x; p < positions; p += threads) *resolver.seen(p) = 0;
      __syncthreads();
    }
  }
  const unsigned head = blockIdx.x;
  const auto lists = per_query_head ? static_cast<unsigned>(op.shape.group()) : 1U;
  for (unsigned list = head * lists; list < (head + 1) * lists; ++list) {
    const unsigned count = op.id_count[list];
    for (unsigned first = 0; first < count; first += threads) {
      const unsigned i = first + threadIdx.x;
      const std::size_t place = list * op.id_stride + i;
      const std::uint32_t position = i < count ? op.ids[place] : 0;
      const bool missed = i < count && resolver.find(place, position);
      unsigned misses = 0;
      const unsigned rank = scan.exclusive_sum(missed ? 1 : 0, misses);
      if (threadIdx.x == 0) reserved = atomicAdd(scratch.misses, misses);
      __syncthreads();
      if (missed) op.missed[reserved + rank] = {position, head, op.rows[place]};
      __syncthreads();  // the next list sees what this one has seen
    }
  }
  end_block(resolver);
}

}  // namespace

Status resolve_rows(const ResolveRows& op, const Launch& launch) {
  const Scratch scratch{launch.scratch, launch.scratch + 1};
  const auto heads = static_cast<unsigned>(op.shape.kv_heads);
  return launch_kernel(launch, {heads, threads}, "resolve_rows", resolve, op, scratch);
}

}  // namespace terrace::kernels::cuda
