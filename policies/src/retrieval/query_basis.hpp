// The basis in which the distance of two keys is the error of a logit, in the mean over queries.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace terrace::policies {

/// Square matrices [dims, dims], row-major, for vectors from the left: with u = q * query_map and
/// y = k * key_map, u.y = q.k.
struct QueryBasis {
  std::vector<float> query_map;
  std::vector<float> key_map;
};

struct QueryBasisInput {
  std::size_t dims = 0;
  std::span<const float> queries;  ///< [any, dims]; empty: all directions count alike
  std::span<const float> keys;     ///< [any, dims]
  double shrinkage = 0.7;          ///< share of "all directions alike" in the weight of directions
  std::size_t subspaces = 1;       ///< divides dims
};

/// Finds the basis.
///
///   S = mean of q q^T, shrunk towards its mean eigenvalue; S = V E V^T, E floored at 1e-3 of the
///   largest. In y = k V E^(1/2) plain distance is (k - k')^T S (k - k'). The axes are then turned
///   to the principal ones of the keys' y and dealt out to the sub-spaces in turn, the largest
///   variance first, so that each sub-space carries about the same; its axes lie side by side.
///
/// Rows with a NaN or infinity take no part.
QueryBasis find_query_basis(const QueryBasisInput& input);

}  // namespace terrace::policies
