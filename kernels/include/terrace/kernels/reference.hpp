// The formulas that the kernels compute, written as plainly as possible: one loop per formula, sums
// in double, one thread. Oracles for tests of any backend; not for use where time matters.
//
//   std::vector<double> weights(op.common.candidates.size());
//   reference::pq_weights(op, head, weights.data());
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/kmeans.hpp"
#include "terrace/kernels/pq_encode.hpp"

namespace terrace::kernels::reference {

/// Attention over sinks | window | selected | pseudo-entries, and its weights; scratch is not used.
/// -inf logits and NaN behave as in host::decode_attention.
void decode_attention(const DecodeAttention& op);

/// Attention over a tile, piece by piece. A state's maximum is in units of the logits.
void tile_attention(const TileAttention& op);

/// Reads the state that the tile_attention above leaves.
void tile_weights(const TileWeights& op);

/// Codes each sub-vector with the centroid of least sum (x - c)^2, ties to the lower one; 0 for one
/// that is not `clustered_below`.
void pq_encode(const PqEncode& op);

/// Writes the weight of each candidate for KV head `head`: [candidates]. In a group of one query
/// head the weight is that head's logit.
void pq_weights(const PqSelect& op, std::size_t head, double* weights);
void exact_weights(const ExactSelect& op, std::size_t head, double* weights);
void channel_weights(const ChannelSelect& op, std::size_t head, double* weights);
void sign_weights(const SignSelect& op, std::size_t head, double* weights);

/// Writes the indices of the min(k, n) largest weights, ascending, by a full sort on (weight
/// descending, index ascending); NaN ranks below -inf. Returns how many.
std::size_t select_topk(const double* weights, std::size_t n, std::size_t k, std::uint32_t* ids);

void pq_select(const PqSelect& op);
void exact_select(const ExactSelect& op);
void channel_select(const ChannelSelect& op);
void page_select(const PageSelect& op);

/// Returns the score of a position, before scaling. Queries are rounded to whole numbers as
/// everywhere.
double refine_score(const RefineSelect& op, std::size_t query_head, std::size_t position);
void refine_select(const RefineSelect& op);

/// Returns the score by the means of groups and the signs of rests.
double sign_score(const SignSelect& op, std::size_t query_head, std::size_t position);
void sign_select(const SignSelect& op);

/// Means of groups are read as they lie; scratch is not used.
void estimate_rest(const EstimateRest& op);

/// Chooses and estimates clusters; a mass to stop at is not looked at.
void cluster_select(const ClusterSelect& op);

/// Rows missed are numbered in the order of the lists; `seen` and its epoch are not used.
void resolve_rows(const ResolveRows& op);
void fetch_rows(const FetchRows& op);

void map_queries(const MapQueries& op);
void convert_queries(const ConvertQueries& op);

/// Lloyd's iterations in double from given initial rows (options.initial_rows must be set), with
/// the same rules as host::kmeans for ties and clusters without members. All rows must be
/// `clustered_below`.
KmeansReport kmeans(const KmeansRows& input, const KmeansOptions& options,
                    const KmeansOutput& output);

}  // namespace terrace::kernels::reference
