// Whether a missed unit is worth its refill.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "terrace/core/replacement.hpp"
#include "terrace/core/result.hpp"

namespace terrace::policies {

struct AdmissionOptions {
  /// Steps over which demand is remembered, and for which a refilled unit is expected to pay.
  double horizon_steps = 32;

  bool operator==(const AdmissionOptions&) const = default;
};

/// Makes `always` (every miss is admitted) or `refill` (a unit is admitted when the rows it would
/// have saved over the horizon are at least the rows its refill moves, and those rows have been
/// saved by hits before). Errors: invalid_argument naming the known ones.
Result<std::unique_ptr<AdmissionPolicy>> make_admission_policy(
    std::string_view name, const AdmissionOptions& options = {});

}  // namespace terrace::policies
