// The table of replacement policies.
//
//   auto lru = policies::make_replacement_policy("lru");
//
// One policy is one file in policies/src/replacement/ and one row in table.cpp. The row has the
// policy's setting and its limits, which are checked there: makers cannot fail. Config, traces, the
// tuner, its reports, tests and benches walk the table.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
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

/// A setting of a policy: a whole number.
struct ReplacementSetting {
  std::string_view key;  ///< of the config
  std::size_t ReplacementOptions::* value = nullptr;
  std::string_view words;  ///< what the number is, in tables
  std::size_t low = 1;
  std::size_t high = std::size_t{1} << 20;
  std::span<const std::size_t> tried = {};  ///< by terrace tune

  /// Returns the setting's name in JSON: the key without "cache.".
  [[nodiscard]] constexpr std::string_view name() const noexcept {
    return key.substr(key.find('.') + 1);
  }
};

struct ReplacementEntry {
  std::string_view name;
  std::string_view meaning;  ///< one line, for --help
  std::unique_ptr<ReplacementPolicy> (*make)(const ReplacementOptions& options);
  std::optional<ReplacementSetting> setting = {};
  bool needs_foresight = false;  ///< serves recorded traces only
};

/// Returns all replacement policies, in the order of the table.
std::span<const ReplacementEntry> replacement_policies() noexcept;

/// Returns the setting of the policy with that name; nothing if no such policy exists.
std::optional<ReplacementSetting> replacement_setting(std::string_view name) noexcept;

/// True where the policy of that name is one that knows the future.
bool needs_foresight(std::string_view name) noexcept;

/// Makes the policy of that name.
///
/// Errors   invalid_argument: unknown, with the nearest known name; its setting out of range; a
///          policy that needs foresight without any
Result<std::unique_ptr<ReplacementPolicy>> make_replacement_policy(
    std::string_view name, const ReplacementOptions& options = {});

}  // namespace terrace::policies
