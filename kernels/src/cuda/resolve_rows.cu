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

/// Words that a queue lends, zero between calls.
struct Scratch {
  std::uint32_t* misses;  ///< of all blocks so far
  std::uint32_t* ended_blocks;
  std::uint32_t* corrected;  ///< lists
  std::uint32_t* useful;     ///< places of lists that a row fetched early served
  std::uint32_t* used;       ///< rows fetched early that served one

  explicit Scratch(std::uint32_t* words)
      : misses(words),
        ended_blocks(words + 1),
        corrected(words + 2),
        useful(words + 3),
        used(words + 4) {}
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

/// Where a row lies in device memory, or null.
__device__ std::byte* find_row(const ResolveRows& op, std::uint32_t position) {
  std::byte* const row = row_place(op.shape, op.resident, blockIdx.x, position);
  if (row != nullptr || op.cached.numbers == nullptr) return row;
  const std::uint32_t number = *cached_number(op.shape, op.cached, blockIdx.x, position);
  return number == 0 ? nullptr : cached_place(op.shape, op.cached, number);
}

/// One block's work.
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

  /// Finds all rows of the head's lists. find_early(list, position) returns where a row lies that
  /// was fetched before the step, or null. Every thread of the block calls it.
  template <typename FindEarly>
  __device__ void resolve(Scan& scan, std::uint32_t& reserved, FindEarly find_early) const {
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
          if (row == nullptr) row = find_early(list, position);
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

  /// Returns the staging row of a missed row; `first` = nobody missed it before.
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

__global__ void resolve(ResolveRows op, Scratch scratch) {
  __shared__ HeadResolver::Scan::Shared scan_shared;
  __shared__ std::uint32_t reserved;
  HeadResolver::Scan scan(scan_shared);
  const HeadResolver resolver(op, scratch);
  resolver.resolve(scan, reserved, [](unsigned, std::uint32_t) -> std::byte* { return nullptr; });
  if (resolver.ends_last()) resolver.publish();
}

/// Rows that one KV head's lists had fetched before the step.
class EarlyRows {
 public:
  __device__ explicit EarlyRows(const ResolveEarlyRows& op)
      : op_(op), row_bytes_(op.resolve.shape.row_bytes()), places_(places_of(op.resolve)) {}

  /// Returns the row of a position of a list, or null. Positions of a list ascend.
  __device__ std::byte* find(unsigned list, std::uint32_t position) {
    if (op_.early_ids == nullptr) return nullptr;
    const std::size_t first = list * op_.resolve.id_stride;
    unsigned low = 0;
    for (unsigned high = op_.early_count[list]; low < high;) {
      const unsigned middle = (low + high) / 2;
      if (op_.early_ids[first + middle] < position) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low == op_.early_count[list] || op_.early_ids[first + low] != position) return nullptr;
    std::byte* const row = op_.early_rows[first + low];
    // What was in a device block then, and is no longer, was not fetched.
    const auto at = static_cast<std::size_t>(row - op_.early_staging);
    if (row < op_.early_staging || at >= places_ * row_bytes_) return nullptr;
    op_.early_used[at / row_bytes_] = 1;
    ++useful_;
    return row;
  }

  [[nodiscard]] __device__ unsigned useful() const { return useful_; }  ///< of this thread

 private:
  const ResolveEarlyRows& op_;
  std::size_t row_bytes_;
  std::size_t places_;
  unsigned useful_ = 0;
};

/// Returns, to every thread, whether a query of the list's heads has turned since the last step.
__device__ bool has_turned(const ResolveEarlyRows& op, unsigned list) {
  const KvShape& shape = op.resolve.shape;
  const auto heads = static_cast<unsigned>(shape.group()) / lists_of_head(op.resolve);
  bool turned = false;
  for (unsigned head = list * heads; head < (list + 1) * heads; ++head) {
    const float* const now = op.query + head * shape.head_dim;
    const float* const before = op.last_query + head * shape.head_dim;
    float product = 0;
    float now_square = 0;
    float before_square = 0;
    for (unsigned i = threadIdx.x % 32; i < shape.head_dim; i += 32) {
      product += now[i] * before[i];
      now_square += now[i] * now[i];
      before_square += before[i] * before[i];
    }
    const float likeness =
        warp_sum(product) / (sqrtf(warp_sum(now_square)) * sqrtf(warp_sum(before_square)));
    turned = turned || !(likeness >= op.likeness_min);
  }
  return turned;
}

/// Writes what the head's lists attend, and returns, to every thread, how many were corrected.
__device__ unsigned choose_lists(const ResolveEarlyRows& op) {
  const unsigned lists = lists_of_head(op.resolve);
  const auto most = static_cast<std::uint32_t>(rows_of_head(op.count, blockIdx.x));
  unsigned corrected = 0;
  for (unsigned list = blockIdx.x * lists; list < (blockIdx.x + 1) * lists; ++list) {
    const bool own = op.early_ids == nullptr || has_turned(op, list);
    const std::size_t first = list * op.resolve.id_stride;
    const std::uint32_t* const source = (own ? op.resolve.ids : op.early_ids) + first;
    const std::uint32_t there = (own ? op.resolve.id_count : op.early_count)[list];
    const std::uint32_t count = there < most ? there : most;
    for (unsigned i = threadIdx.x; i < count; i += threads) op.ids[first + i] = source[i];
    if (threadIdx.x == 0) op.id_count[list] = count;
    corrected += own ? 1 : 0;
  }
  return corrected;
}

__global__ void resolve_early(ResolveEarlyRows op, Scratch scratch) {
  __shared__ HeadResolver::Scan::Shared scan_shared;
  __shared__ std::uint32_t reserved;
  HeadResolver::Scan scan(scan_shared);
  const unsigned corrected = choose_lists(op);
  // Rows of the head's lists were staged among the places of these lists.
  const std::size_t places = lists_of_head(op.resolve) * op.resolve.id_stride;
  std::uint8_t* const used = op.early_used + blockIdx.x * places;
  for (std::size_t i = threadIdx.x; i < places; i += threads) used[i] = 0;
  __syncthreads();
  const std::size_t floats = op.resolve.shape.group() * op.resolve.shape.head_dim;
  for (std::size_t i = threadIdx.x; i < floats; i += threads) {
    op.last_query[blockIdx.x * floats + i] = op.query[blockIdx.x * floats + i];
  }

  ResolveRows attended = op.resolve;
  attended.ids = op.ids;
  attended.id_count = op.id_count;
  const HeadResolver resolver(attended, scratch);
  EarlyRows early(op);
  resolver.resolve(scan, reserved, [&early](unsigned list, std::uint32_t position) {
    return early.find(list, position);
  });

  unsigned served = 0;
  for (std::size_t i = threadIdx.x; i < places; i += threads) served += used[i];
  unsigned useful_of_all = 0;
  unsigned used_of_all = 0;
  scan.exclusive_sum(early.useful(), useful_of_all);
  scan.exclusive_sum(served, used_of_all);
  if (threadIdx.x == 0) {
    atomicAdd(scratch.corrected, corrected);
    atomicAdd(scratch.useful, useful_of_all);
    atomicAdd(scratch.used, used_of_all);
  }
  if (!resolver.ends_last()) return;
  resolver.publish();
  const std::uint32_t fetched = op.early_ids == nullptr ? 0 : *op.early_missed;
  *op.outcome = {take(scratch.corrected), fetched, take(scratch.useful), *op.resolve.missed_count,
                 fetched - take(scratch.used)};
}

}  // namespace

Status resolve_rows(const ResolveRows& op, const Launch& launch) {
  const auto heads = static_cast<unsigned>(op.shape.kv_heads);
  return launch_kernel(launch, {heads, threads}, "resolve_rows", resolve, op,
                       Scratch(launch.scratch));
}

Status resolve_early_rows(const ResolveEarlyRows& op, const Launch& launch) {
  const auto heads = static_cast<unsigned>(op.resolve.shape.kv_heads);
  return launch_kernel(launch, {heads, threads}, "resolve_early_rows", resolve_early, op,
                       Scratch(launch.scratch));
}

}  // namespace terrace::kernels::cuda
