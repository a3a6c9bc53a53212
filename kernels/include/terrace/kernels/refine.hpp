// A second stage of selections: candidates that an index proposes are scored again by codes of one
// or two bits an element of what the index leaves of their keys. See RefineShape.
//
//   host::refine_encode(encode);                       // once, when tokens are indexed
//   host::refine_select(select, threads);              // of the proposed the best
//
// Not here: proposing (select.hpp and others).
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels {

/// Codes the rests of keys of one KV head.
struct RefineEncode {
  KvShape shape;
  RefineShape codes;
  IndexView index;  ///< codes are written to its chunks; those of the index itself are there, and
                    ///< so are vectors
  std::size_t head = 0;
  TokenRange tokens;
  float* keys = nullptr;  ///< [tokens, head_dim], in the space of the index; overwritten
};

/// A query as codes are multiplied with it: whole numbers, times `unit`.
struct RefineQuery {
  float unit = 0;  ///< NaN of a query that is not finite
};

/// Numbers of a query are at most this, so that sums of products are exact in f32.
inline constexpr float refine_query_max = 4095;

/// Rotates a query and rounds it to whole numbers of at most `most`, ties to even: [head_dim].
RefineQuery round_query(const float* query, std::size_t dims, float* numbers,
                        float most = refine_query_max) noexcept;

namespace host {

/// Writes the codes of `tokens`, no others. A rest that is not finite has the factor NaN: it spoils
/// no other token. A rest of zeros has the factor 0.
///
/// Limits   allocates nothing
/// Tests    tests/kernels/refine_test.cpp
void refine_encode(const RefineEncode& op) noexcept;

/// Chooses by refined scores. Ties go to the lower position, NaN ranks last.
///
/// Threads  one part per KV head; results do not depend on threads; allocates nothing
/// Cost     per proposed candidate and query head `subspaces` look-ups and one product of whole
///          numbers of head_dim elements
/// Source   one bit a channel, unbiased by one factor: Gao and Long, RaBitQ, 2024; the stage:
///          IndexRefine of FAISS
/// Tests    tests/kernels/refine_test.cpp
void refine_select(const RefineSelect& op, Parallel& threads);

}  // namespace host
}  // namespace terrace::kernels
