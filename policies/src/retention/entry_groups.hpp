// From what becomes of each candidate to the map of new entries.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/retention.hpp"

namespace terrace::policies {

/// Returns the `count` best of all candidates, in rising order; of equal ones the first.
[[nodiscard]] std::vector<std::uint32_t> best_of(std::span<const float> importance,
                                                 std::size_t count);

/// Returns the candidates that `some`, which rise, are not.
[[nodiscard]] std::vector<std::uint32_t> all_but(std::span<const std::uint32_t> some,
                                                 std::size_t candidates);

/// Candidates of a KV head and the entries that they become.
class EntryGroups {
 public:
  explicit EntryGroups(std::size_t candidates) : group_(candidates, EntryMap::dropped) {}

  /// Each of these stays unchanged.
  void keep(std::span<const std::uint32_t> candidates);
  /// These become one entry.
  void merge(std::span<const std::uint32_t> candidates);

  /// Numbers the entries by their last candidates.
  [[nodiscard]] EntryMap map() const;

 private:
  std::vector<std::uint32_t> group_;  ///< the last candidate of the entry, or `dropped`
};

}  // namespace terrace::policies
