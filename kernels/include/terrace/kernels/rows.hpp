// Moving rows on the host: engine tensors to blocks, keys to an index or to f32, and the rows that
// a selection misses to a staging area. Bytes are copied unchanged; nothing here rounds.
//
//   host::resolve_rows(resolve);                              // which rows are here, which missed
//   const std::size_t bytes = host::fetch_rows(fetch, threads);
//
// Not here: deciding which rows to move (policies), and queues (offload).
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels::host {

/// Packs tokens of K and V into rows of blocks, and returns the bytes written.
///
/// Shapes   as StoreRows says; every block that `tokens` touches must be there
/// Memory   source and target must not overlap; no alignment needed
/// Cost     2 * bytes written; one memcpy per run where the source already has the row layout
/// Tests    tests/kernels/rows_test.cpp
std::size_t store_rows(const StoreRows& op, Parallel& threads);

/// Keys to copy into the chunks of an exact index.
struct KeyCopy {
  KvShape shape;
  BlockTable rows;
  TokenRange tokens;
  IndexView index;
};

/// Copies keys of rows.
///
/// Layout   chunk: keys [kv_heads, chunk_tokens, head_dim] in the KV dtype
/// Memory   chunks and rows must not overlap
/// Errors   invalid_argument: a size of 0 or above 2^32, no block or no chunk where a token is, or
/// a
///          token before the index. Then nothing is written
/// Tests    tests/kernels/read_keys_test.cpp
[[nodiscard]] Status key_copy(const KeyCopy& op, Parallel& threads);

/// Keys of one KV head to copy into the chunks of an index of channels.
struct KeyChannels {
  KvShape shape;
  BlockTable rows;
  TokenRange tokens;
  std::size_t head = 0;
  ChannelShape channels;
  IndexView index;  ///< where it is partial, `fixed` says which channels it has
};

/// Copies channels of keys.
///
/// Layout   chunk: keys [kv_heads, channels stored, chunk_tokens] in the KV dtype
/// Memory   chunks and rows must not overlap
/// Errors   as key_copy's, and invalid_argument: a head that does not exist, or a number of
///          channels that is 0 or above head_dim. Then nothing is written
/// Threads  different heads side by side
/// Tests    tests/kernels/read_keys_test.cpp
[[nodiscard]] Status key_channels(const KeyChannels& op) noexcept;

/// Finds each selected row: in its resident block, otherwise among cached rows, otherwise in a
/// staging row that it assigns.
///
/// Missed rows come in the order of the lists. The row at place i of list l, if missed, is staged
/// in row l * id_stride + i. Under query_head scope the first list of a group that wants a missed
/// row stages it and later ones point there: `seen` remembers the number of the miss, counted from
/// 1 over all calls, and `seen_epoch` how many misses earlier calls had. Therefore an entry is of
/// this call exactly if it is greater than `seen_epoch`, and nothing is cleared between calls.
///
/// Limits   one list of a group at a time; when the count of misses nears 2^32, `seen` is zeroed
/// Threads  one thread at a time per `seen`
/// Tests    tests/kernels/resolve_rows_test.cpp
void resolve_rows(const ResolveRows& op);

/// Copies missed rows from host blocks to their staging rows, and returns the bytes copied.
///
/// Memory   every missed row's block must be there
/// Cost     2 * bytes; rows ahead are prefetched, because scattered rows defeat the hardware
/// Tests    tests/kernels/resolve_rows_test.cpp
std::size_t fetch_rows(const FetchRows& op, Parallel& threads);

/// Copies rows from staging rows or host blocks to their places among cached rows, notes where each
/// row of the changes is from now on, and returns the bytes that came from host blocks.
///
/// Memory   every arriving row's block must be there, and every block of cached rows it goes to
/// Cost     2 * bytes
/// Tests    tests/kernels/cached_rows_test.cpp
std::size_t cache_rows(const CacheRows& op, Parallel& threads);

/// A part of the keys of one KV head: dimensions [first_dim, first_dim + dims) of `tokens`. The
/// dimensions of a key are followed by those of its value, which may be read, too.
struct KeySlice {
  KvShape shape;
  BlockTable rows;
  TokenRange tokens;
  std::size_t head = 0;
  std::size_t first_dim = 0;
  std::size_t dims = 0;
};

/// Reads keys as f32, for clustering and other arithmetic over many of them.
///
/// Shapes   target [tokens.size(), dims]; first_dim + dims <= 2 * head_dim
/// Memory   target and rows must not overlap
/// Errors   invalid_argument: a size of 0 or above 2^32, no block where a token is, a head or
///          dimensions that do not exist, no target, or memory that overlaps. Then nothing is
///          written
/// Threads  reentrant
/// Tests    tests/kernels/read_keys_test.cpp
[[nodiscard]] Status read_keys(const KeySlice& slice, float* target) noexcept;

}  // namespace terrace::kernels::host
