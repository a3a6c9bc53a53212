// The figures of the headline's runs, as rows.
#pragma once

#include "serving/headline.hpp"

namespace terrace::bench {

/// A row's figure of one batch. Errors: unsupported: this policy has no such figure.
using PutPoint = Status (*)(Row& row, const HeadlineCost& cost);

struct PointRow {
  const char* name;  ///< between "headline_" and "_b"
  const char* unit;
  Better better;
  PutPoint put;
};

/// Rows of each batch.
std::span<const PointRow> point_rows() noexcept;

/// Sequences of a policy in the model's device memory; nothing is run for it.
Status put_fits(Row& row, const HeadlinePolicy& policy);

/// Errors   unsupported: no batch was measured whose rows no step streams
Status put_headline_device_bytes(Row& row, const HeadlineCosts& costs);

/// Tokens a second of as many sequences as fit. Where fewer are measured, a step of all of them
/// counts as longer in proportion. If not one sequence of a policy that keeps everything fits, its
/// rows are streamed.
///
/// Errors   unsupported: not one sequence fits, or no such batch was measured
Status put_tokens_per_second(Row& row, const HeadlineSettings& settings,
                             const HeadlinePolicy& policy, const HeadlineCosts& costs);

/// Times are of all layers of the model: those measured, in proportion.
void put_first_token(Row& row, const HeadlineSettings& settings, const HeadlinePolicy& policy,
                     const FirstTokenFigures& figures);

}  // namespace terrace::bench
