// Attention over rows that lie in host memory: of one query token over chosen rows anywhere, or of
// many tokens over all rows of a tile.
//
//   DecodeAttention op{.shape = shape, .query = q, .output = out, .resident = table, ...};
//   host::decode_attention(op, threads);
//
// Not here: choosing the rows.
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels::host {

/// Computes attention over sinks | window | selected | pseudo-entries, in this order.
///
/// A piece of `attention_split` entries is an online softmax over tiles of 32; pieces are merged in
/// order. Bits depend on the rows' contents and their order only: not on addresses, blocks,
/// threads, or on which query heads share a KV head. No entries at all give zeros.
///
/// Logits   -inf has weight 0 (its value must be finite, for 0 * inf is NaN); if all are -inf the
///          output is zero; +inf or NaN make the output of their query heads NaN
/// Rests of groups are not written down: see decision 0094. Selected rows and means form one
/// softmax of the whole list, which is merged after the pieces of resident rows
/// Weights are of the same logits as the output. Their sums over a KV head's query heads are taken
/// in the heads' order
/// Shapes   head_dim even, up to 1024; any group: up to 8 query heads share one pass over the rows
/// Memory   rows need no alignment; query, output and scratch must not overlap
/// Threads  lists * pieces parts, then one part per query head, then, for weights, lists * pieces
///          parts once more; with rests one part per KV head; allocates nothing
/// Cost     reads each row once per 8 query heads; 4 * head_dim flops per entry and query head.
///          head_dim 64 and 128 have code of their own; other dimensions take a third longer.
///          Weights cost an exponential per entry and query head
/// Source   own; online softmax after Milakov and Gimelshein 2018, split and merge after
///          Flash-Decoding 2023 (ideas only)
/// Tests    tests/kernels/attention_test.cpp, tests/kernels/attention_weights_test.cpp,
///          tests/kernels/rests_test.cpp
void decode_attention(const DecodeAttention& op, Parallel& threads);

/// Computes exact attention of many query tokens over the rows of a tile, going on from a state.
///
/// A softmax goes on from 64 rows to the next 64. Bits depend on the rows that a token sees, on
/// where tiles begin in them, in pieces of 64, and on nothing else.
///
/// Logits   as decode_attention; rows that no token sees are not read. A maximum is to the base 2
/// Shapes   head_dim even, up to 1024; any group
/// Memory   rows need no alignment; query, state and output must not overlap
/// Threads  parts of 64 to 128 query heads of a KV head, of all tokens, or fewer where head_dim is
///          above 128; allocates nothing, 170 KiB of stack a thread
/// Cost     4 * head_dim flops per row, query head and token; widens rows once per part. Up to 8
///          heads read keys and values once per 4 of them
/// Source   own; online softmax after Milakov and Gimelshein 2018
/// Tests    tests/kernels/tile_attention_test.cpp
void tile_attention(const TileAttention& op, Parallel& threads);

/// Adds the weights that query tokens gave to the rows of a tile, from the state that
/// tile_attention left. Products are added up in another order than in tile_attention, so that the
/// relative error of a weight is the absolute error of the logits.
///
/// Shapes   as decode_attention
/// Memory   rows need no alignment; query and state are only read
/// Threads  parts of 32 to 512 rows of a KV head; allocates nothing, 140 KiB of stack a thread
/// Cost     2 * head_dim flops per row, query head and token; reads keys once per part
/// Tests    tests/kernels/tile_weights_test.cpp
void tile_weights(const TileWeights& op, Parallel& threads);

}  // namespace terrace::kernels::host
