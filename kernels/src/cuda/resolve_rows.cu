// Finding selected rows, one KV head a block: see terrace/kernels/cuda/ops.hpp.
//
// An entry of `seen` is seen_epoch + 1 + the place of the staging row, and the epoch passes as many
// places with each call: so an entry is of this call exactly if it is above the epoch, and no block
// has to know how many misses other heads have.
#include <cuda_runtime.h>

#include <type_traits>

#include "device/block_scan.cuh"
#include "device/calls.cuh"
#include "device/last_block.cuh"
#include "device/launch_kernel.cuh"
#include "device/row_place.cuh"
#include "device/row_slots.cuh"
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

/// The work of a block.
class HeadResolver {
 public:
  using Scan = BlockScan<threads>;
  using Slots = HeadSlots<threads>;
  struct Shared {
    Scan::Shared scan;
    Slots::Shared slots;
    std::uint32_t reserved;  ///< places among the missed rows
  };

  __device__ HeadResolver(const ResolveRows& op, const Scratch& scratch, Shared& shared)
      : op_(op),
        scratch_(scratch),
        shared_(shared),
        scan_(shared.scan),
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
  __device__ void resolve() {
    if (op_.slots.count > 0) return resolve_into_slots();
    for_each_place([&](std::size_t place, bool is_one) {
      const bool is_missed = is_one && !find(place);
      const bool first = is_missed && is_first(place);
      if (is_missed) op_.rows[place] = staged(place);
      note_missed(place, first);
    });
  }

  /// Publishes how many rows were missed, and makes all entries old.
  __device__ void publish() const {
    *op_.missed_count = take(scratch_.misses);
    if (remembers_) *op_.seen_epoch = epoch_ + places_of(op_);
  }

 private:
  /// Calls visit(place, whether the thread has one) in every thread, for the places of the head's
  /// lists in their order. A list sees what the one before has done.
  template <typename Visit>
  __device__ void for_each_place(Visit visit) const {
    const unsigned lists = lists_of_head(op_);
    for (unsigned list = blockIdx.x * lists; list < (blockIdx.x + 1) * lists; ++list) {
      const unsigned count = op_.id_count[list];
      for (unsigned first = 0; first < count; first += threads) {
        const unsigned i = first + threadIdx.x;
        visit(list * op_.id_stride + i, i < count);
        __syncthreads();
      }
    }
  }

  /// Missed rows get slots, once it is known how many there are, and which slots are not free.
  __device__ void resolve_into_slots() {
    Slots slots(op_, shared_.slots);
    unsigned missed = 0;
    for_each_place([&](std::size_t place, bool is_one) {
      unsigned all = 0;
      scan_.exclusive_sum(is_one && !find(place, &slots) && is_first(place) ? 1 : 0, all);
      missed += all;
    });
    slots.make_room(scan_, missed);
    missed = 0;
    for_each_place([&](std::size_t place, bool is_one) {
      const bool is_missed = is_one && op_.rows[place] == nullptr;
      const bool first = is_missed && is_first(place);
      unsigned all = 0;
      const unsigned rank = missed + scan_.exclusive_sum(first ? 1 : 0, all);
      missed += all;
      if (is_missed) {
        std::byte* const slot = first ? slots.admit(rank, op_.ids[place]) : cached_row(place);
        op_.rows[place] = slot != nullptr ? slot : staged(place);
      }
      note_missed(place, first);
    });
    slots.finish();
  }

  /// Notes where the row of a place is in device memory, or null. Returns whether it is there.
  __device__ bool find(std::size_t place, Slots* slots = nullptr) const {
    std::byte* row = row_place(op_.shape, op_.resident, blockIdx.x, op_.ids[place]);
    if (row == nullptr) {
      row = cached_row(place);
      if (row != nullptr && slots != nullptr) slots->note_found(number_at(place));
    }
    op_.rows[place] = row;
    return row != nullptr;
  }

  /// Returns the number of a place's row among the cached ones, or 0.
  [[nodiscard]] __device__ std::uint32_t number_at(std::size_t place) const {
    if (op_.cached.numbers == nullptr) return 0;
    return *cached_number(op_.shape, op_.cached, blockIdx.x, op_.ids[place]);
  }
  [[nodiscard]] __device__ std::byte* cached_row(std::size_t place) const {
    const std::uint32_t number = number_at(place);
    return number == 0 ? nullptr : cached_place(op_.shape, op_.cached, number);
  }

  /// Whether no list before this one has missed the row of a place.
  __device__ bool is_first(std::size_t place) const {
    if (!remembers_) return true;
    std::uint32_t* const entry = seen(op_.ids[place]);
    const std::uint32_t own = epoch_ + 1 + static_cast<std::uint32_t>(place);
    if (*entry <= epoch_) *entry = own;
    return *entry == own;
  }

  /// Returns the staging row of a missed row, which the first list that misses it stages.
  [[nodiscard]] __device__ std::byte* staged(std::size_t place) const {
    const std::size_t first = remembers_ ? std::size_t{*seen(op_.ids[place])} - epoch_ - 1 : place;
    return op_.staging + first * op_.shape.row_bytes();
  }

  /// Adds the row of a place to those that are to be fetched, if it was missed.
  __device__ void note_missed(std::size_t place, bool missed) {
    unsigned misses = 0;
    const unsigned rank = scan_.exclusive_sum(missed ? 1 : 0, misses);
    if (threadIdx.x == 0) shared_.reserved = atomicAdd(scratch_.misses, misses);
    __syncthreads();
    if (!missed) return;
    op_.missed[shared_.reserved + rank] = {op_.ids[place], blockIdx.x, op_.rows[place]};
  }

  [[nodiscard]] __device__ std::uint32_t* seen(std::uint32_t position) const {
    return op_.seen + static_cast<std::size_t>(blockIdx.x) * op_.seen_stride + position;
  }

  const ResolveRows& op_;
  const Scratch& scratch_;
  Shared& shared_;
  Scan scan_;
  bool remembers_;           ///< whether lists of this head may want the same row
  std::uint32_t epoch_ = 0;  ///< entries of `seen` up to it are old
};

/// blockIdx: KV head; z: call.
template <unsigned capacity>
__global__ void resolve(const Calls<ResolveRows, capacity> __grid_constant__ calls,
                        std::uint32_t* scratch_memory) {
  static_assert(std::is_trivially_default_constructible_v<HeadResolver::Shared>);
  __shared__ HeadResolver::Shared shared;
  const Scratch scratch(scratch_memory, calls.call());
  HeadResolver resolver(calls.of_block(), scratch, shared);
  resolver.resolve();
  if (ends_last(scratch.ended_blocks, gridDim.x) && threadIdx.x == 0) resolver.publish();
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
