// The slots of one KV head in a call of resolve_rows, which a block works on together: see
// terrace/core/ops/rows.hpp.
#pragma once

#include <cuda_runtime.h>

#include "block_scan.cuh"
#include "row_place.cuh"

namespace terrace::kernels::cuda {

/// Every thread of the block calls each member function, but for note_found and admit.
template <unsigned threads>
class HeadSlots {
 public:
  using Scan = BlockScan<threads>;
  static constexpr unsigned ages = RowSlots::oldest_age + 1;
  static_assert(threads == ages);

  struct Shared {
    unsigned of_age[ages];  ///< slots
    unsigned age;           ///< older slots are all freed
    unsigned of_that_age;   ///< and so many slots of that age
    unsigned found;         ///< as RowSlotCounts, whose constructor each thread would run
    unsigned evicted;
  };

  __device__ HeadSlots(const ResolveRows& op, Shared& shared)
      : op_(op), shared_(shared), call_(op.slots.calls[blockIdx.x] + 1) {
    if (threadIdx.x == 0) shared_.found = shared_.evicted = 0;
    __syncthreads();
  }

  /// A thread has found a cached row. Another list of the head may have found it before.
  __device__ void note_found(std::uint32_t number) {
    std::uint32_t* const found = &op_.slots.each[number - 1].found;
    if (*found == call_) return;
    *found = call_;
    atomicAdd(&shared_.found, 1U);
  }

  /// Frees slots for so many rows, or as many as there are.
  __device__ void make_room(Scan& scan, unsigned rows) {
    __syncthreads();
    const unsigned others = count() - shared_.found;
    freed_ = rows < others ? rows : others;
    if (freed_ == 0) return;
    find_limit(scan);
    free_slots(scan);
  }

  /// Gives the missed row of that rank among the head's a slot, if there is one for it, and returns
  /// the slot's row or null.
  __device__ std::byte* admit(unsigned rank, std::uint32_t position) const {
    if (rank >= freed_) return nullptr;
    const std::uint32_t number = freed_number(rank);
    *cached_number(op_.shape, op_.cached, blockIdx.x, position) = number;
    RowSlot& slot = op_.slots.each[number - 1];
    slot.held = position + 1;
    slot.found = call_;
    return cached_place(op_.shape, op_.cached, number);
  }

  __device__ void finish() const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    op_.slots.calls[blockIdx.x] = call_;
    op_.slot_counts[blockIdx.x] = {
        .found = shared_.found, .admitted = freed_, .evicted = shared_.evicted};
  }

 private:
  [[nodiscard]] __device__ unsigned count() const { return static_cast<unsigned>(op_.slots.count); }
  [[nodiscard]] __device__ std::uint32_t number_of(unsigned slot) const {
    return slot_number(op_.shape, op_.cached, blockIdx.x, slot);
  }
  /// Where the number of the freed slot of that rank is kept.
  [[nodiscard]] __device__ std::uint32_t& freed_number(unsigned rank) const {
    return op_.slots.each[number_of(rank) - 1].freed;
  }
  /// Returns 0 for slots whose rows the call has found, and for those beyond the last one.
  [[nodiscard]] __device__ unsigned age_of(unsigned slot) const {
    if (slot >= count()) return 0;
    const unsigned age = call_ - op_.slots.each[number_of(slot) - 1].found;
    return age < RowSlots::oldest_age ? age : RowSlots::oldest_age;
  }

  __device__ void find_limit(Scan& scan) {
    shared_.of_age[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned slot = threadIdx.x; slot < count(); slot += threads) {
      atomicAdd(&shared_.of_age[age_of(slot)], 1U);
    }
    __syncthreads();
    const unsigned age = RowSlots::oldest_age - threadIdx.x;
    unsigned all = 0;
    const unsigned older = scan.exclusive_sum(age == 0 ? 0 : shared_.of_age[age], all);
    if (age > 0 && older < freed_ && older + shared_.of_age[age] >= freed_) {
      shared_.age = age;
      shared_.of_that_age = freed_ - older;
    }
    __syncthreads();
  }

  /// Lists the freed slots in their order, and forgets their rows.
  __device__ void free_slots(Scan& scan) {
    unsigned older_before = 0;
    unsigned alike_before = 0;
    for (unsigned first = 0; first < count(); first += threads) {
      const unsigned slot = first + threadIdx.x;
      const unsigned age = age_of(slot);
      const bool older = age > shared_.age;
      const bool alike = age == shared_.age;
      unsigned all = 0;
      const unsigned before = scan.exclusive_sum((older ? 1U << 16 : 0U) + (alike ? 1 : 0), all);
      const unsigned its_alike = alike_before + before % (1U << 16);
      const unsigned taken = its_alike < shared_.of_that_age ? its_alike : shared_.of_that_age;
      if (older || (alike && its_alike < shared_.of_that_age)) {
        free(slot, older_before + (before >> 16) + taken);
      }
      older_before += all >> 16;
      alike_before += all % (1U << 16);
    }
    __syncthreads();
  }

  __device__ void free(unsigned slot, unsigned rank) {
    const std::uint32_t number = number_of(slot);
    freed_number(rank) = number;
    const std::uint32_t held = op_.slots.each[number - 1].held;
    if (held == 0) return;
    *cached_number(op_.shape, op_.cached, blockIdx.x, held - 1) = 0;
    atomicAdd(&shared_.evicted, 1U);
  }

  const ResolveRows& op_;
  Shared& shared_;
  std::uint32_t call_;  ///< from 1
  unsigned freed_ = 0;
};

}  // namespace terrace::kernels::cuda
