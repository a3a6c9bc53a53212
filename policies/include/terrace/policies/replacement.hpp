// The table of replacement policies.
//
//   auto lru = policies::make_replacement_policy("lru");
//
// One policy is one file in policies/src/replacement/ and one row in table.cpp, where settings are
// checked: makers cannot fail. Tests, benches and the tuner walk the table.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "terrace/core/replacement.hpp"
#include "terrace/core/result.hpp"

namespace terrace::policies {

struct ReplacementOptions {
  std::size_t lfu_half_life = 0;         ///< lfu: steps after which counts are halved; 0 = never
  std::size_t lrfu_half_life = 8;        ///< lrfu: steps after which a use counts half
  std::size_t last_steps = 1;            ///< last_steps: steps whose units stay
  const Foresight* foresight = nullptr;  ///< belady; must outlive the policy

  bool operator==(const ReplacementOptions&) const = default;
};

struct ReplacementEntry {
  std::string_view name;
  std::string_view meaning;  ///< one line, for --help
  std::unique_ptr<ReplacementPolicy> (*make)(const ReplacementOptions& options);
  bool needs_foresight = false;  ///< serves recorded traces only
};

/// Returns all replacement policies, in the order of the table.
std::span<const ReplacementEntry> replacement_policies() noexcept;

/// True where the policy of that name is one that knows the future.
bool needs_foresight(std::string_view name) noexcept;

/// Makes the policy of that name.
///
/// Errors   invalid_argument: unknown, with the nearest known name; no step to keep; a policy that
///          needs foresight without any
Result<std::unique_ptr<ReplacementPolicy>> make_replacement_policy(
    std::string_view name, const ReplacementOptions& options = {});

}  // namespace terrace::policies
