// The table of retention policies.
//
//   auto policy = policies::make_retention_policy("kvcrush", {.base = "snapkv"});
//
// One policy is one file in policies/src/retention/ and one row in table.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/core/retention.hpp"
#include "terrace/policies/outlier_heads.hpp"
#include "terrace/policies/retention_gates.hpp"

namespace terrace::policies {

enum class PoolKind : std::uint8_t { max, average };

/// Scores of neighbours make one: spans of tokens stay together, not tokens.
struct PoolOptions {
  std::size_t width = 0;  ///< positions, the one in the middle included; odd. 1 = no pooling, 0 =
                          ///< as the policy's authors do
  PoolKind kind = PoolKind::max;

  [[nodiscard]] PoolOptions or_else(const PoolOptions& theirs) const noexcept {
    return width == 0 ? theirs : *this;
  }
};

/// How often snapkv and pyramidkv choose.
enum class Rerun : std::uint8_t { once, flush };

/// The word that kvcrush compares words of votes with.
enum class Anchor : std::uint8_t { random, mean, alternate };

/// By which kvcrush spreads its representatives.
enum class CrushRule : std::uint8_t {
  hamming,   ///< evenly over tokens in the order of their distance to the anchor
  position,  ///< evenly over positions: as good, by measurement
};

struct CrushOptions {
  double representatives = 0.25;  ///< share of the entries that may stay
  Anchor anchor = Anchor::mean;
  CrushRule rule = CrushRule::hamming;
  /// Tokens that stay or go together, from a multiple of so many positions on; 1 = each by itself.
  /// Entries that may stay, and make no whole block, are left free.
  std::size_t block_tokens = 1;
};

struct MergeOptions {
  double share = 0;  ///< of the entries that may stay: merged ones, of all that the base leaves
  std::size_t chunk = 256;  ///< entries; a match lies in the same chunk. 0 = all in one
};

/// Whether smartkv's KV heads keep the same tokens.
enum class GateLists : std::uint8_t {
  own,  ///< each KV head by its own ratings
  sum,  ///< a layer's KV heads by the sum of their ratings
};

/// Settings of all retention policies; each reads its own.
struct RetentionOptions {
  std::string base = "h2o";  ///< of kvcrush: the policy that chooses the entries that stay
  PoolOptions pool = {};
  std::size_t score_window = 32;  ///< queries of snapkv and pyramidkv
  Rerun rerun = Rerun::flush;
  bool normalise = false;     ///< h2o: divide by the number of queries that saw the token
  double pyramid_slope = 20;  ///< pyramidkv: the last layer keeps mean / slope
  bool ageing = true;         ///< smartkv: predicted lifespan minus age
  std::shared_ptr<const Gates> gates = nullptr;  ///< smartkv: needed
  GateLists gate_lists = GateLists::own;
  /// chelsea: the model's outlier heads; null = no outlier heads.
  std::shared_ptr<const OutlierHeads> outlier_heads = nullptr;
  CrushOptions crush = {};
  MergeOptions merge = {};

  /// Errors: invalid_argument: a setting out of range, even of another policy.
  [[nodiscard]] Status validate() const;
};

struct RetentionEntry {
  std::string_view name;
  std::string_view meaning;  ///< one line, for --help
  Result<std::unique_ptr<RetentionPolicy>> (*make)(const RetentionOptions&);
};

/// Returns all retention policies, in the order of the table.
std::span<const RetentionEntry> retention_policies() noexcept;

/// Makes the policy of that name.
/// Errors: invalid_argument naming the known policies, or the setting that is out of range.
Result<std::unique_ptr<RetentionPolicy>> make_retention_policy(
    std::string_view name, const RetentionOptions& options = {});

}  // namespace terrace::policies
