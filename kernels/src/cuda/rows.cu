// Copies of rows: see terrace/kernels/cuda/ops.hpp.
#include <cuda_runtime.h>

#include <algorithm>
#include <utility>

#include "device/launch_kernel.cuh"
#include "device/row_place.cuh"
#include "device/units.cuh"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned store_blocks_max = 1024;
// Rows that cross the link: the link is full with few blocks, and compute goes on beside them.
constexpr unsigned link_blocks = 12;
constexpr unsigned units_at_once = 4;  // 12 * 256 * 4 * 16 bytes = 192 KiB in flight
constexpr unsigned blocks_per_launch = 64;
constexpr unsigned extents_per_launch = 128;
constexpr unsigned extent_units = 256;  // longer ones are cut: all take the same turns

/// Blocks of a table, by value: the table itself is the host's.
struct BlockRun {
  std::byte* blocks[blocks_per_launch];
};

/// Extents, by value: the list itself is the host's.
struct ExtentRun {
  CopyExtent extents[extents_per_launch];
};

/// Copies token, head and half a row as units; rows.tokens lie in the blocks of `run`.
__global__ void store_units(StoreRows rows, std::size_t first_block_token, BlockRun run) {
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
    const std::size_t place = rows.tokens.begin + token - first_block_token;
    const std::size_t row = head * rows.target.block_tokens + place % rows.target.block_tokens;
    std::byte* const target = run.blocks[place / rows.target.block_tokens] +
                              row * rows.shape.row_bytes() + (is_value ? half : 0);
    const std::byte* const source = (is_value ? rows.source.values : rows.source.keys) +
                                    token * rows.source.token_stride +
                                    head * rows.source.head_stride;
    const std::size_t offset = static_cast<std::size_t>(unit) * unit_bytes;
    Unit copy;
    copy.read(target + offset, source + offset, unit_size(half, unit));
    copy.write();
  }
}

/// Copies `units` units, several of a thread in flight at a time; read(i, copy) reads unit i, or
/// leaves `copy` empty.
template <typename Read>
__device__ void copy_in_flight(std::size_t units, Read read) {
  for (std::size_t first = grid_thread(); first < units; first += units_at_once * grid_threads()) {
    Unit copies[units_at_once];
#pragma unroll
    for (unsigned k = 0; k < units_at_once; ++k) {
      const std::size_t i = first + k * grid_threads();
      copies[k].bytes = 0;
      copies[k].aligned = false;
      if (i < units) read(i, copies[k]);
    }
#pragma unroll
    for (unsigned k = 0; k < units_at_once; ++k) copies[k].write();
  }
}

__global__ void fetch_units(FetchRows op, std::uint64_t* moved) {
  const std::size_t row_bytes = op.shape.row_bytes();
  const unsigned row_units = units_of(row_bytes);
  const std::size_t count = *op.missed_count;
  if (grid_thread() == 0) *moved += count * row_bytes;
  copy_in_flight(count * row_units, [&](std::size_t i, Unit& copy) {
    const MissedRow row = op.missed[i / row_units];
    const auto unit = static_cast<unsigned>(i % row_units);
    const std::size_t offset = static_cast<std::size_t>(unit) * unit_bytes;
    copy.read(row.target + offset, row_place(op.shape, op.source, row.head, row.position) + offset,
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
    copy.read(extent.target + offset, extent.source + offset, unit_size(extent.bytes, unit));
  });
}

/// Copies arriving rows as units; the first thread of a row notes where it is, or that it is gone.
__global__ void cache_units(CacheRows op) {
  const std::size_t row_bytes = op.shape.row_bytes();
  const unsigned row_units = units_of(row_bytes);
  copy_in_flight(op.count * row_units, [&](std::size_t i, Unit& copy) {
    const CachedRowChange change = op.changes[i / row_units];
    const auto unit = static_cast<unsigned>(i % row_units);
    if (unit == 0) {
      *cached_number(op.shape, op.target, change.head, change.position) = change.number;
    }
    if (change.number == 0) return;
    const std::size_t offset = static_cast<std::size_t>(unit) * unit_bytes;
    const std::byte* const source =
        change.staged != 0 ? op.staging + (change.staged - std::size_t{1}) * row_bytes
                           : row_place(op.shape, op.source, change.head, change.position);
    copy.read(cached_place(op.shape, op.target, change.number) + offset, source + offset,
              unit_size(row_bytes, unit));
  });
}

}  // namespace

Result<std::size_t> store_rows(const StoreRows& op, const Launch& launch) {
  const std::size_t block_tokens = op.target.block_tokens;
  const unsigned most = op.crosses_link ? link_blocks : store_blocks_max;
  for (std::size_t begin = op.tokens.begin; begin < op.tokens.end;) {
    const std::size_t first_block = begin / block_tokens;
    const std::size_t end =
        std::min(op.tokens.end, (first_block + blocks_per_launch) * block_tokens);
    BlockRun run{};
    for (std::size_t block = first_block; block * block_tokens < end; ++block) {
      run.blocks[block - first_block] = op.target.blocks[block];
    }
    StoreRows part = op;
    part.tokens = {begin, end};
    part.source.keys += (begin - op.tokens.begin) * op.source.token_stride;
    part.source.values += (begin - op.tokens.begin) * op.source.token_stride;
    const std::size_t half = op.shape.row_bytes() / 2;
    const std::size_t units = part.tokens.size() * op.shape.kv_heads * 2 * units_of(half);
    TERRACE_TRY(launch_kernel(launch, {blocks_for(units, threads, most), threads}, "store_rows",
                              store_units, part, first_block * block_tokens, run));
    begin = end;
  }
  return op.crosses_link ? op.tokens.size() * op.shape.token_bytes() : 0;
}

Status fetch_rows(const FetchRows& op, const Launch& launch) {
  return launch_kernel(launch, {link_blocks, threads}, "fetch_rows", fetch_units, op, launch.moved);
}

Result<std::size_t> cache_rows(const CacheRows& op, const Launch& launch) {
  if (op.count == 0) return 0;
  TERRACE_TRY(launch_kernel(launch, {link_blocks, threads}, "cache_rows", cache_units, op));
  const auto moved = std::count_if(op.changes, op.changes + op.count, crosses_link);
  return static_cast<std::size_t>(moved) * op.shape.row_bytes();
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
