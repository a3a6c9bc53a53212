// The kernels a decode step is made of, as a table that each backend fills. Their arguments are in
// terrace/core/ops/, a file for each kind.
//
// An op is enqueued on a queue, for one call or a batch of them (terrace/core/op.hpp), and returns
// a ticket; arguments are copied, the memory they point to must stay valid until the ticket is
// done. Each struct is the arguments of one call. Pointers are device memory unless a line says
// otherwise; counts named `*_count` that are passed by pointer are read when the op runs. Memory
// that an op writes overlaps nothing else that the op is given: no op works in place. Memory that
// an op only reads may overlap. f32 arithmetic; ties go to the lower position. Ops but
// `fetch_rows`, `cache_rows` and `store_rows` touch device memory only. Positions are absolute
// token positions, from 0. Shapes and rows: terrace/core/shape.hpp.
#pragma once

#include "terrace/core/op.hpp"
#include "terrace/core/ops/attention.hpp"
#include "terrace/core/ops/clusters.hpp"
#include "terrace/core/ops/groups.hpp"
#include "terrace/core/ops/queries.hpp"
#include "terrace/core/ops/rows.hpp"
#include "terrace/core/ops/selection.hpp"

namespace terrace {

/// The kernels of a backend. An absent (null) entry means unsupported: ask before choosing.
struct Ops {
  Op<StoreRows> store_rows = {};
  Op<PqSelect> pq_select = {};
  Op<ExactSelect> exact_select = {};
  Op<ChannelSelect> channel_select = {};
  Op<MapQueries> map_queries = {};
  Op<ConvertQueries> convert_queries = {};
  Op<PageSelect> page_select = {};
  Op<ClusterSelect> cluster_select = {};
  Op<RefineSelect> refine_select = {};
  Op<SignSelect> sign_select = {};
  Op<ResolveRows> resolve_rows = {};
  Op<FetchRows> fetch_rows = {};
  Op<CacheRows> cache_rows = {};
  Op<DecodeAttention> decode_attention = {};
  Op<TileAttention> tile_attention = {};
  Op<TileWeights> tile_weights = {};
};

}  // namespace terrace
