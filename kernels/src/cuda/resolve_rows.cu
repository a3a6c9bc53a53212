// Finding selected rows, one KV head a block: see terrace/kernels/cuda/ops.hpp.
//
// An entry of `seen` is seen_epoch + 1 + the place of the staging row, and the epoch passes as many
// places with each call: so an entry is of this call exactly if it is above the epoch, and no block
// has to know how many misses other heads have.
#include <cuda_runtime.h>

#include "device/block_scan.cuh"
#include "device/calls.cuh"
#include "device/launch_kernel.cuh"
#include "device/row_place.cuh"
#include "terrace/kernels/cuda/ops.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;

/// Words that a queue lends, zero between launches, for the blocks of one call.
struct Scratch {
  std::uint32_t* misses;  ///< of all blocks so far
  std::uint32_t* ended_blocks;

  __device__ Scratch(std::uint32_t* words, unsigned call)
      : misses(words + 2 * call), ended_blocks(misses + 1) {}
};

/// Returns what all blocks have added, and sets it back.
__device__ std::uint32_t take(std::uint32_t* word) { return atomicExch(word, 0U); }

/// Lists of one KV head.
__host__ __device__ constexpr unsigned lists_of_head(const ResolveRows& op) {
  return static_cast<unsigned>(lists_per_kv_head(op.shape, op.scope));
}

/// Places that the lists have together: what the epoch passes with each call.
__host__ __device__ constexpr std::uint32_t places_of(const ResolveRows& op) {
  return static_cast<std::uint32_t>(list_count(op.shape, op.scope) * op.id_stride);
}

/// Returns the address of a row in device memory, or null.
__device__ std::byte* find_row(const ResolveRows& op, std::uint32_t position) {
  std::byte* const row = row_place(op.shape, op.resident, blockIdx.x, position);
  if (row != nullptr || op.cached.numbers == nullptr) return row;
  const std::uint32_t number = *cached_number(op.shape, op.cached, blockIdx.x, position);
  return number == 0 ? nullptr : cached_place(op.shape, op.cached, number);
}

/// The work of a block.
class HeadResolver {
 public:
  using Scan = BlockScan<threads>;

  __device__ HeadResolver(const ResolveRows& op, const Scratch& scratch)
      : op_(op),
        scratch_(scratch),
        remembers_(op.scope == ListScope::query_head && op.seen != nullptr) {
    if (!remembers_) return;
    epoch_ = *op.seen_epoch;
    if (0xffffffffU - epoch_ > places_of(op)) return;
    epoch_ = 0;  // it is near its end: all entries are old
    const auto positions = static_cast<std::uint32_t>(op.seen_stride);
    for (std::uint32_t p = threadIdx.x; p < positions; p += threads) *seen(p) = 0;
    __syncthreads();
  }

  /// Finds all rows of the head's lists. Every thread of the block calls it.
  __device__ void resolve(Scan& scan, std::uint32_t& reserved) const {
    const unsigned lists = lists_of_head(op_);
    for (unsigned list = blockIdx.x * lists; list < (blockIdx.x + 1) * lists; ++list) {
      const unsigned count = op_.id_count[list];
      for (unsigned first = 0; first < count; first += threads) {
        const unsigned i = first + threadIdx.x;
        const std::size_t place = list * op_.id_stride + i;
        const std::uint32_t position = i < count ? op_.ids[place] : 0;
        bool missed = false;
        if (i < count) {
          std::byte* row = find_row(op_, position);
          if (row == nullptr) row = stage(place, position, missed);
          op_.rows[place] = row;
        }
        unsigned misses = 0;
        const unsigned rank = scan.exclusive_sum(missed ? 1 : 0, misses);
        if (threadIdx.x == 0) reserved = atomicAdd(scratch_.misses, misses);
        __syncthreads();
        if (missed) op_.missed[reserved + rank] = {position, blockIdx.x, op_.rows[place]};
        __syncthreads();  // the next list sees what this one has seen
      }
    }
  }

  /// Returns true to one thread of the block that ends last, which then publishes.
  [[nodiscard]] __device__ bool ends_last() const {
    __syncthreads();
    if (threadIdx.x != 0) return false;
    __threadfence();
    if (atomicAdd(scratch_.ended_blocks, 1U) + 1 != gridDim.x) return false;
    *scratch_.ended_blocks = 0;
    return true;
  }

  /// Publishes how many rows were missed, and makes all entries old.
  __device__ void publish() const {
    *op_.missed_count = take(scratch_.misses);
    if (remembers_) *op_.seen_epoch = epoch_ + places_of(op_);
  }

 private:
  [[nodiscard]] __device__ std::uint32_t* seen(std::uint32_t position) const {
    return op_.seen + static_cast<std::size_t>(blockIdx.x) * op_.seen_stride + position;
  }

  /// Returns the staging row of a missed row; `first` = no list has missed it before.
  __device__ std::byte* stage(std::size_t place, std::uint32_t position, bool& first) const {
    const std::uint32_t entry = remembers_ ? *seen(position) : 0;
    first = !remembers_ || entry <= epoch_;
    if (first && remembers_) *seen(position) = epoch_ + 1 + static_cast<std::uint32_t>(place);
    return op_.staging + (first ? place : std::size_t{entry} - epoch_ - 1) * op_.shape.row_bytes();
  }

  const ResolveRows& op_;
  const Scratch& scratch_;
  bool remembers_;           ///< whether lists of this head may want the same row
  std::uint32_t epoch_ = 0;  ///< entries of `seen` up to it are old
};

/// blockIdx: KV head; z: call.
template <unsigned capacity>
__global__ void resolve(const Calls<ResolveRows, capacity> __grid_constant__ calls,
                        std::uint32_t* scratch_memory) {
  __shared__ HeadResolver::Scan::Shared scan_shared;
  __shared__ std::uint32_t reserved;
  HeadResolver::Scan scan(scan_shared);
  const Scratch scratch(scratch_memory, calls.call());
  const HeadResolver resolver(calls.of_block(), scratch);
  resolver.resolve(scan, reserved);
  if (resolver.ends_last()) resolver.publish();
}

}  // namespace

Status resolve_rows(std::span<const ResolveRows> batch, const Launch& launch) {
  return launch_calls(batch, [&]<unsigned capacity>(const Calls<ResolveRows, capacity>& calls) {
    static_assert(2 * capacity <= scratch_words);
    const dim3 grid = calls.grid(static_cast<unsigned>(calls.each[0].shape.kv_heads));
    return launch_kernel(launch, {grid, threads}, "resolve_rows", resolve<capacity>, calls,
                         launch.scratch);
  });
}

}  // namespace terrace::kernels::cuda
