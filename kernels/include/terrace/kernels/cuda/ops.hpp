// The ops of a decode step for CUDA. Each enqueues one to three kernels on a stream and returns,
// for as many calls of a batch as a launch takes (calls_per_launch); the host kernels are the
// specification: terrace/kernels/{rows,select,page_select,cluster_select,refine,
// map_vectors,convert_queries,attention}.hpp.
//
//   TERRACE_TRY(cuda::decode_attention(batch, launch));
//
// Nothing is allocated, and the host waits for nothing. Results do not depend on timing: equal
// inputs give equal bits, with any other calls in a batch. The bits differ from the host's: sums
// are taken in another order.
//
// Memory   as terrace/core/ops.hpp says; pointers to elements are aligned to the element, rows may
//          have any alignment that is a multiple of it (16 bytes are fast)
// Errors   device_error, device_lost: the launch was refused
// Tests    tests/cuda/
#pragma once

#include <span>

#include "terrace/core/ops.hpp"
#include "terrace/core/queue.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::kernels::cuda {

/// Packs tokens of K and V into rows of blocks, and returns the bytes that cross the link.
///
/// Memory   source, and target blocks: device, or locked host memory. The table is read now
/// Cost     of one call a launch for each 64 blocks touched; of several each run of 4 blocks counts
///          as a call
[[nodiscard]] Result<std::size_t> store_rows(std::span<const StoreRows> batch,
                                             const Launch& launch);

/// Chooses by approximate scores. Cost: at most three launches.
[[nodiscard]] Status pq_select(std::span<const PqSelect> batch, const Launch& launch);

/// Chooses by exact scores. Cost: at most three launches.
[[nodiscard]] Status exact_select(std::span<const ExactSelect> batch, const Launch& launch);

/// Chooses by scores of some channels. Cost: at most three launches; each block of the first finds
/// the channels anew, which takes it about as long as a few of them.
[[nodiscard]] Status channel_select(std::span<const ChannelSelect> batch, const Launch& launch);

/// Takes queries into the space in which an index has its keys. Cost: one launch.
[[nodiscard]] Status map_queries(std::span<const MapQueries> batch, const Launch& launch);

/// Converts numbers of queries or outputs, with the host's bits. Cost: one launch; a thread moves 8
/// numbers, at once where they are aligned to 16 bytes.
[[nodiscard]] Status convert_queries(std::span<const ConvertQueries> batch, const Launch& launch);

/// Chooses whole pages. Cost: at most three launches.
[[nodiscard]] Status page_select(std::span<const PageSelect> batch, const Launch& launch);

/// Chooses whole clusters. Cost: three launches; the last ranks all clusters of a list in one block
/// and walks down the ranking in one warp.
///
/// Limits   mass_wanted: at most 64 query heads a list, as on the host
[[nodiscard]] Status cluster_select(std::span<const ClusterSelect> batch, const Launch& launch);

/// Chooses among proposed candidates by refined scores. Cost: at most three launches.
[[nodiscard]] Status refine_select(std::span<const RefineSelect> batch, const Launch& launch);
/// At most three launches.
[[nodiscard]] Status sign_select(std::span<const SignSelect> batch, const Launch& launch);

/// Finds each selected row, in its block, among cached rows or in a staging row. Misses of one KV
/// head come in the order of its lists; the order of the heads is free. The op itself makes the
/// entries of `seen`. Cost: one launch.
///
/// Limits   query_heads * id_stride < 2^31
[[nodiscard]] Status resolve_rows(std::span<const ResolveRows> batch, const Launch& launch);

/// Copies missed rows straight from locked host memory to their staging rows. The bytes are added
/// to `launch.moved`. Cost: one launch of few blocks, so that compute goes on beside it.
[[nodiscard]] Status fetch_rows(std::span<const FetchRows> batch, const Launch& launch);

/// Copies rows from staging rows, or straight from locked host memory, to their places among cached
/// rows, notes where each row of the changes is from now on, and returns the bytes that cross the
/// link. `changes` are locked host memory, too.
/// Cost: one launch of few blocks.
[[nodiscard]] Result<std::size_t> cache_rows(std::span<const CacheRows> batch,
                                             const Launch& launch);

/// Whether both ends are aligned so that a thread copies 16 bytes at once.
[[nodiscard]] bool are_units(const CopyExtent& extent) noexcept;

/// Copies extents, for copies too short for a copy engine. No op of a step: queues use it.
///
/// Memory   both ends: device, or locked host memory; no two extents overlap
/// Cost     a launch of few blocks for each 128 pieces of at most 4 KiB
[[nodiscard]] Status copy_extents(std::span<const CopyExtent> extents, const Launch& launch);

/// Computes attention over sinks | window | selected | pseudo-entries, in pieces of
/// `attention_split_min` entries that are merged in order. NaN and infinities as on the host.
/// Cost     one launch, and another for weights
[[nodiscard]] Status decode_attention(std::span<const DecodeAttention> batch, const Launch& launch);

/// Computes exact attention of many query tokens over the rows of a tile, going on from a state.
/// Pieces of `tile_split` rows are merged in order: a token's bits depend on the same things as on
/// the host. Cost: one launch, each block reading the tile for four query heads.
///
/// Limits   tokens * group < 2^31
[[nodiscard]] Status tile_attention(std::span<const TileAttention> batch, const Launch& launch);

/// Adds the weights that query tokens gave to the rows of a tile, of a state that tile_attention
/// left. Cost: one launch, each block reading all queries for 128 rows of a KV head.
///
/// Limits   tokens * group < 2^31
[[nodiscard]] Status tile_weights(std::span<const TileWeights> batch, const Launch& launch);

}  // namespace terrace::kernels::cuda
