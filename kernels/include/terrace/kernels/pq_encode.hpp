// Product-quantisation codes of keys.
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels {

/// Codes rows: for each token, head and sub-space the nearest centroid (L2) of its key.
struct PqEncode {
  KvShape shape;
  PqShape pq;
  BlockTable rows;
  TokenRange tokens;
  IndexView index;  ///< codes are written into its chunks
};

namespace host {

/// Codes each token, head and sub-space with the nearest centroid (L2), ties to the lower one.
///
/// A key gets the label that kmeans() gave it, but where squared distances to two centroids differ
/// by no more than labels may err by there. Distances are compared as
/// |c|^2 - 2 x.c in f32, so that squared distances nearer to each other than about 1e-6 of |x| |c|
/// may be taken for one another. Products below f32's least normal number may count as zero: where
/// no element is above 1e-19 all centroids may be tied. A sub-vector that is not `clustered_below`
/// gets code 0.
///
/// Layout   as PqShape says; codes are written for `tokens` only
/// Memory   chunks and rows must not overlap
/// Errors   invalid_argument: a shape that KvShape refuses, pq.subspaces that do not divide
///          head_dim, pq.bits not 1 to 8, no codebooks, no block or no chunk where a token is, or a
///          token before the index. Then nothing is written
/// Threads  one part per KV head and sub-space; allocates nothing
/// Tests    tests/kernels/pq_encode_test.cpp
[[nodiscard]] Status pq_encode(const PqEncode& op, Parallel& threads);

}  // namespace host
}  // namespace terrace::kernels
