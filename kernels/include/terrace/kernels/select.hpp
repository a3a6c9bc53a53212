// Choosing the rows a query attends to: scores of all candidates, one weight per KV head, top-k.
//
//   host::pq_select({.common = common, .pq = {.subspaces = 2, .bits = 6}, .index = view}, threads);
//
// Not here: fetching what was chosen (rows.hpp).
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels::host {

// Rules that these selections follow.
//
// The logit of a candidate and a query head is its score divided by sqrt(head_dim). A NaN logit
// counts as -inf, +inf as the largest float; a query head whose logits are all -inf adds nothing.
// The group's query heads are reduced to one weight as GroupReduction says, the softmax being over
// the candidates. If the group is one query head its logits are ranked directly: softmax keeps
// order, and underflow would make ties of different logits. In this case NaN ranks below -inf.
// Chosen are the min(count, candidates) largest weights, ties to the lower position, ascending:
// no candidate for a count of 0, all candidates if there are fewer (decision 0055).
//
// Memory   ids: nothing beyond the count is written; scratch as SelectCommon says, any alignment
// Threads  one part per KV head; results do not depend on threads; allocates nothing

/// Chooses by scores from product-quantisation codes: approximations of the keys' scores. The order
/// of these scores is exact (decision 0059).
///
/// Layout   codes u8 [kv_heads, subspaces, chunk_tokens] per chunk, each below 2^bits: a byte each,
///          for any number of bits (decision 0054)
/// Shapes   subspaces divides head_dim; bits 1 to 8
/// Cost     candidates * subspaces look-ups per query head, about three passes over the logits
/// Source   asymmetric distance: Jegou, Douze, Schmid 2011; use for KV cache: PQCache 2024, decode
/// Tests    tests/kernels/select_test.cpp
void pq_select(const PqSelect& op, Parallel& threads);

/// Chooses by exact scores.
///
/// Layout   keys in the KV dtype [kv_heads, chunk_tokens, head_dim] per chunk
/// Cost     reads every candidate's key once per 4 query heads of a group
/// Tests    tests/kernels/select_test.cpp
void exact_select(const ExactSelect& op, Parallel& threads);

/// Chooses by scores of some channels: products with the elements of keys in which the query is
/// taken to be large; all other elements count as 0. Logits have the same bits on each instruction
/// set.
///
/// Layout   keys in the KV dtype [kv_heads, channels stored, chunk_tokens] per chunk
/// Cost     reads these channels of every candidate once per 4 query heads of a group
/// Source   SparQ attention: Ribar et al. 2023, step 1
/// Tests    tests/kernels/channel_select_test.cpp
void channel_select(const ChannelSelect& op, Parallel& threads);

}  // namespace terrace::kernels::host
