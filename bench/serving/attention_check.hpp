// Checks that a step's output is right, by plain attention in double.
#pragma once

#include <cstddef>
#include <span>

#include "serving/traffic.hpp"
#include "terrace/core/result.hpp"
#include "terrace/runtime/sequence.hpp"

namespace terrace::bench {

/// A token in a layer, and its attention output.
struct AttendedToken {
  const Traffic& traffic;
  std::size_t layer = 0;
  std::size_t position = 0;
  std::span<const float> output;  ///< [query_heads, head_dim]
  std::size_t head_stride = 1;    ///< every so many query heads are checked
};

/// Checks the output against attention over exactly the rows that the step says it attended to.
/// For policies without estimates.
///
/// Errors   corrupt: an output is off by more than 1e-3, no number, or a row is attended to twice
/// Cost     in the order of query heads * rows * head_dim, on one thread
Status check_attended_rows(const AttendedToken& token, const StepSelection& attended);

/// Checks that the output of each query head has a cosine above 0.8 with that of attention over
/// all rows. For policies with estimates of the rows that they leave out.
///
/// Errors   corrupt
Status check_near_full_attention(const AttendedToken& token);

}  // namespace terrace::bench
