// The table of replacement policies.
//
//   auto lru = policies::make_replacement_policy("lru");
//
// One policy is one file in policies/src/replacement/ and one row in table.cpp; tests and benches
// walk the table.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "terrace/core/replacement.hpp"
#include "terrace/core/result.hpp"

namespace terrace::policies {

struct ReplacementEntry {
  std::string_view name;
  std::string_view meaning;  ///< one line, for --help
  std::unique_ptr<ReplacementPolicy> (*make)();
};

/// Returns all replacement policies, in the order of the table.
std::span<const ReplacementEntry> replacement_policies() noexcept;

/// Makes the policy of that name. Errors: invalid_argument with the nearest known name.
Result<std::unique_ptr<ReplacementPolicy>> make_replacement_policy(std::string_view name);

}  // namespace terrace::policies
