// From what becomes of each candidate to the map of new entries.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/retention.hpp"

namespace terrace::policies {

/// Returns the `count` best of the candidates in `which`, in rising order; of equal ones the first.
[[nodiscard]] std::vector<std::uint32_t> best_of(std::span<const float> importance,
                                                 std::span<const std::uint32_t> which,
                                                 std::size_t count);

/// Returns those of `all` that `some` has not; both rise.
[[nodiscard]] std::vector<std::uint32_t> without(std::span<const std::uint32_t> all,
                                                 std::span<const std::uint32_t> some);

/// Candidates of a KV head and the entries that they become.
class EntryGroups {
 public:
  explicit EntryGroups(std::size_t candidates) : group_(candidates, EntryMap::dropped) {}

  /// Each of these stays as it is.
  void keep(std::span<const std::uint32_t> candidates);
  /// These become one entry.
  void merge(std::span<const std::uint32_t> candidates);

  /// Numbers the entries by their last candidates.
  [[nodiscard]] EntryMap map() const;

 private:
  std::vector<std::uint32_t> group_;  ///< the last candidate of the entry, or `dropped`
};

}  // namespace terrace::policies
