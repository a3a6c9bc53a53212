// Copies of rows: see terrace/kernels/cuda/ops.hpp.
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "device/block_scan.cuh"
#include "device/calls.cuh"
#include "device/launch_kernel.cuh"
#include "device/row_place.cuh"
#include "device/units.cuh"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned store_blocks_max = 1024;
// Rows that cross the link. An H100's link is full with these blocks and half full with half of
// them. As many bytes in flight from fewer processors, by more threads or by the bulk copy engine,
// slow down the attention that shares those processors.
constexpr unsigned link_blocks = 24;
constexpr unsigned units_at_once = 4;      // 24 * 256 * 4 * 16 bytes = 384 KiB in flight
constexpr unsigned store_run_blocks = 64;  // of a call alone
constexpr unsigned short_run_blocks = 4;   // of one among others: of a token or a few it needs one
constexpr unsigned extents_per_launch = 128;
constexpr unsigned extent_units = 256;  // longer ones are cut: all take the same turns

/// Tokens to store, with their blocks passed by value: the table itself is in host memory.
template <unsigned block_count>
struct StoreRun {
  StoreRows rows;  ///< rows.tokens lie in `blocks`
  std::size_t first_block_token;
  std::byte* blocks[block_count];

  /// The run that begins at token `begin` of a call.
  static StoreRun of(const StoreRows& op, std::size_t begin) {
    const std::size_t block_tokens = op.target.block_tokens;
    const std::size_t first_block = begin / block_tokens;
    const std::size_t end = std::min(op.tokens.end, (first_block + block_count) * block_tokens);
    StoreRun run{op, first_block * block_tokens, {}};
    for (std::size_t block = first_block; block * block_tokens < end; ++block) {
      run.blocks[block - first_block] = op.target.blocks[block];
    }
    run.rows.tokens = {begin, end};
    run.rows.source.keys += (begin - op.tokens.begin) * op.source.token_stride;
    run.rows.source.values += (begin - op.tokens.begin) * op.source.token_stride;
    return run;
  }
  [[nodiscard]] std::size_t units() const {
    return rows.tokens.size() * rows.shape.kv_heads * 2 * units_of(rows.shape.row_bytes() / 2);
  }
};

/// Extents, by value: the list itself is the host's.
struct ExtentRun {
  CopyExtent extents[extents_per_launch];
};

/// Copies token, head and half a row as units.
template <unsigned block_count, unsigned capacity>
__global__ void store_units(const Calls<StoreRun<block_count>, capacity> __grid_constant__ calls) {
  const StoreRun<block_count>& run = calls.of_block();
  const StoreRows& rows = run.rows;
  const std::size_t half = rows.shape.head_dim * size_bytes(rows.shape.dtype);
  const unsigned half_units = units_of(half);
  const auto heads = static_cast<unsigned>(rows.shape.kv_heads);
  const std::size_t units = rows.tokens.size() * heads * 2 * half_units;
  for (std::size_t i = grid_thread(); i < units; i += grid_threads()) {
    const auto unit = static_cast<unsigned>(i % half_units);
    const std::size_t piece = i / half_units;
    const bool is_value = piece % 2 == 1;
    const auto head = static_cast<unsigned>(piece / 2 % heads);
    const std::size_t token = piece / 2 / heads;
    const std::size_t place = rows.tokens.begin + token - run.first_block_token;
    const std::size_t row = head * rows.target.block_tokens + place % rows.target.block_tokens;
    std::byte* const target = run.blocks[place / rows.target.block_tokens] +
                              row * rows.shape.row_bytes() + (is_value ? half : 0);
    const std::byte* const source = (is_value ? rows.source.values : rows.source.keys) +
                                    token * rows.source.token_stride +
                                    head * rows.source.head_stride;
    const std::size_t offset = static_cast<std::size_t>(unit) * unit_bytes;
    Unit copy;
    copy.aim(target + offset, source + offset, unit_size(half, unit));
    copy.read();
    copy.write();
  }
}

/// Copies `units` units, several of a thread in flight at a time; aim(i, unit) says from where and
/// to where unit i goes, or leaves it empty. While units are in flight the thread aims the next
/// ones: the place of a row is read over the link, too.
template <typename Aim>
__device__ void copy_in_flight(std::size_t units, Aim aim) {
  Unit next[units_at_once];
  const auto aim_from = [&](std::size_t first) {
#pragma unroll
    for (unsigned k = 0; k < units_at_once; ++k) {
      const std::size_t i = first + k * grid_threads();
      next[k] = {};
      if (i < units) aim(i, next[k]);
    }
  };
  const std::size_t step = units_at_once * grid_threads();
  aim_from(grid_thread());
  for (std::size_t first = grid_thread(); first < units; first += step) {
    Unit now[units_at_once];
#pragma unroll
    for (unsigned k = 0; k < units_at_once; ++k) {
      now[k] = next[k];
      now[k].read();
    }
    aim_from(first + step);
#pragma unroll
    for (unsigned k = 0; k < units_at_once; ++k) now[k].write();
  }
}

/// The rows that calls copy, call after call, so that all blocks of a grid share them evenly.
template <unsigned capacity>
class RowsOfCalls {
 public:
  static_assert(capacity <= threads);
  struct Shared {
    BlockScan<threads>::Shared scan;
    unsigned ends[capacity];
  };
  struct Place {
    unsigned call;
    std::size_t row;
  };

  /// Call i has count(i) rows. Every thread of the block calls it.
  template <typename Count>
  __device__ RowsOfCalls(Shared& shared, unsigned calls, Count count) : ends_(shared.ends) {
    if constexpr (capacity == 1) {
      total_ = count(0);
    } else {
      const unsigned own = threadIdx.x < calls ? static_cast<unsigned>(count(threadIdx.x)) : 0;
      unsigned total = 0;
      const unsigned before = BlockScan<threads>(shared.scan).exclusive_sum(own, total);
      if (threadIdx.x < capacity) shared.ends[threadIdx.x] = before + own;
      total_ = total;
      __syncthreads();
    }
  }

  [[nodiscard]] __device__ std::size_t total() const { return total_; }

  /// Finds row `i` of all.
  [[nodiscard]] __device__ Place at(std::size_t i) const {
    if constexpr (capacity == 1) return {0, i};
    unsigned call = 0;  // as many end at or before it
    constexpr unsigned first_step = std::bit_floor(capacity);
    for (unsigned step = first_step; step > 0; step /= 2) {
      if (call + step <= capacity && ends_[call + step - 1] <= i) call += step;
    }
    return {call, call == 0 ? i : i - ends_[call - 1]};
  }

 private:
  const unsigned* ends_;
  std::size_t total_;
};

template <unsigned capacity>
__global__ void fetch_units(const Calls<FetchRows, capacity> __grid_constant__ calls,
                            std::uint64_t* moved) {
  __shared__ typename RowsOfCalls<capacity>::Shared shared;
  const RowsOfCalls<capacity> rows(shared, calls.count,
                                   [&](unsigned i) { return *calls.each[i].missed_count; });
  const std::size_t row_bytes = calls.each[0].shape.row_bytes();
  const unsigned row_units = units_of(row_bytes);
  if (grid_thread() == 0) *moved += rows.total() * row_bytes;
  copy_in_flight(rows.total() * row_units, [&](std::size_t i, Unit& copy) {
    const auto [call, missed] = rows.at(i / row_units);
    const FetchRows& op = calls.each[call];
    const MissedRow row = op.missed[missed];
    const auto unit = static_cast<unsigned>(i % row_units);
    const std::size_t offset = static_cast<std::size_t>(unit) * unit_bytes;
    copy.aim(row.target + offset, row_place(op.shape, op.source, row.head, row.position) + offset,
             unit_size(row_bytes, unit));
  });
}

/// Copies `count` extents of at most `extent_units` units.
__global__ void copy_units(ExtentRun run, unsigned count) {
  copy_in_flight(std::size_t{count} * extent_units, [&](std::size_t i, Unit& copy) {
    const CopyExtent& extent = run.extents[i / extent_units];
    const auto unit = static_cast<unsigned>(i % extent_units);
    const std::size_t offset = static_cast<std::size_t>(unit) * unit_bytes;
    if (offset >= extent.bytes) return;
    copy.aim(extent.target + offset, extent.source + offset, unit_size(extent.bytes, unit));
  });
}

/// Copies arriving rows as units; the first thread of a row notes where it is, or that it is gone.
template <unsigned capacity>
__global__ void cache_units(const Calls<CacheRows, capacity> __grid_constant__ calls) {
  __shared__ typename RowsOfCalls<capacity>::Shared shared;
  const RowsOfCalls<capacity> rows(shared, calls.count,
                                   [&](unsigned i) { return calls.each[i].count; });
  const std::size_t row_bytes = calls.each[0].shape.row_bytes();
  const unsigned row_units = units_of(row_bytes);
  copy_in_flight(rows.total() * row_units, [&](std::size_t i, Unit& copy) {
    const auto [call, row] = rows.at(i / row_units);
    const CacheRows& op = calls.each[call];
    const CachedRowChange change = op.changes[row];
    const auto unit = static_cast<unsigned>(i % row_units);
    if (unit == 0) {
      *cached_number(op.shape, op.target, change.head, change.position) = change.number;
    }
    if (change.number == 0) return;
    const std::size_t offset = static_cast<std::size_t>(unit) * unit_bytes;
    const std::byte* const source =
        change.staged != 0 ? op.staging + (change.staged - std::size_t{1}) * row_bytes
                           : row_place(op.shape, op.source, change.head, change.position);
    copy.aim(cached_place(op.shape, op.target, change.number) + offset, source + offset,
             unit_size(row_bytes, unit));
  });
}

template <unsigned block_count, unsigned capacity>
Status launch_runs(const Calls<StoreRun<block_count>, capacity>& calls, const Launch& launch) {
  using Run = StoreRun<block_count>;
  const bool crosses =
      std::ranges::any_of(calls.all(), [](const Run& run) { return run.rows.crosses_link; });
  const unsigned most = std::max(1U, (crosses ? link_blocks : store_blocks_max) / calls.count);
  const std::size_t units = calls.largest([](const Run& run) { return run.units(); });
  return launch_kernel(launch, {calls.grid(blocks_for(units, threads, most)), threads},
                       "store_rows", store_units<block_count, capacity>, calls);
}

/// Stores all tokens of a batch, as many runs of at most `block_count` blocks at a time as fit.
template <unsigned block_count, unsigned capacity>
Status store_all(std::span<const StoreRows> batch, const Launch& launch) {
  using Run = StoreRun<block_count>;
  Calls<Run, capacity> calls;
  for (const StoreRows& op : batch) {
    for (std::size_t begin = op.tokens.begin; begin < op.tokens.end;) {
      Run& run = calls.each[calls.count++];
      run = Run::of(op, begin);
      begin = run.rows.tokens.end;
      if (calls.count < capacity) continue;
      TERRACE_TRY(launch_runs(calls, launch));
      calls.count = 0;
    }
  }
  return calls.count == 0 ? Status{} : launch_runs(calls, launch);
}

}  // namespace

Result<std::size_t> store_rows(std::span<const StoreRows> batch, const Launch& launch) {
  if (batch.size() == 1) {
    TERRACE_TRY((store_all<store_run_blocks, 1>(batch, launch)));
  } else {
    constexpr unsigned capacity = calls_per_launch(sizeof(StoreRun<short_run_blocks>));
    TERRACE_TRY((store_all<short_run_blocks, capacity>(batch, launch)));
  }
  std::size_t bytes = 0;
  for (const StoreRows& op : batch) {
    if (op.crosses_link) bytes += op.tokens.size() * op.shape.token_bytes();
  }
  return bytes;
}

Status fetch_rows(std::span<const FetchRows> batch, const Launch& launch) {
  return launch_calls(batch, [&]<unsigned capacity>(const Calls<FetchRows, capacity>& calls) {
    return launch_kernel(launch, {link_blocks, threads}, "fetch_rows", fetch_units<capacity>, calls,
                         launch.moved);
  });
}

Result<std::size_t> cache_rows(std::span<const CacheRows> batch, const Launch& launch) {
  TERRACE_TRY(launch_calls(
      batch, [&]<unsigned capacity>(const Calls<CacheRows, capacity>& calls) -> Status {
        const auto changes = calls.largest([](const CacheRows& op) { return op.count; });
        if (changes == 0) return {};
        return launch_kernel(launch, {link_blocks, threads}, "cache_rows", cache_units<capacity>,
                             calls);
      }));
  std::size_t bytes = 0;
  for (const CacheRows& op : batch) {
    const auto moved = std::count_if(op.changes, op.changes + op.count, crosses_link);
    bytes += static_cast<std::size_t>(moved) * op.shape.row_bytes();
  }
  return bytes;
}

bool are_units(const CopyExtent& extent) noexcept {
  return is_aligned(extent.target, unit_bytes) && is_aligned(extent.source, unit_bytes);
}

Status copy_extents(std::span<const CopyExtent> extents, const Launch& launch) {
  constexpr std::size_t extent_bytes = extent_units * unit_bytes;
  ExtentRun run{};
  unsigned count = 0;
  const auto launch_run = [&]() -> Status {
    const unsigned blocks = blocks_for(std::size_t{count} * extent_units, threads, link_blocks);
    return launch_kernel(launch, {blocks, threads}, "copy_extents", copy_units, run,
                         std::exchange(count, 0U));
  };
  for (const CopyExtent& extent : extents) {
    for (std::size_t at = 0; at < extent.bytes; at += extent_bytes) {
      run.extents[count++] = {extent.target + at, extent.source + at,
                              std::min(extent_bytes, extent.bytes - at)};
      if (count == extents_per_launch) TERRACE_TRY(launch_run());
    }
  }
  return count == 0 ? Status{} : launch_run();
}

}  // namespace terrace::kernels::cuda
