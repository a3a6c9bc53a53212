// How many units a replay of a trace knows at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "terrace/tuning/trace.hpp"

namespace terrace::tuning {

/// The smallest blocks that are tried, in tokens.
inline constexpr std::size_t smallest_block_tokens = 8;

/// The most units of sequences that are open at a time, in all their layers: each unit takes memory
/// of every cache that is replayed. 16 sequences of a million tokens in 64 layers have as many.
inline constexpr std::size_t open_units_max = std::size_t{1} << 27;

/// So many units take less than 1 GiB in any cache. A few bytes of a trace can name millions of
/// units, so a trace may have more only if its records want at least one in so many of them. A
/// sequence of a million tokens in 64 layers has fewer.
inline constexpr std::size_t free_units = (std::size_t{1} << 23) + (std::size_t{1} << 20);
inline constexpr std::size_t units_of_each_wanted = 16;

/// The memory that a layer of a sequence takes besides its units, as so many units.
inline constexpr std::size_t layer_units = 16;

/// Counts clusters, or blocks of the smallest size, of the sequences that are open.
class OpenUnits {
 public:
  explicit OpenUnits(const TraceHead& head);

  void add(const TraceRecord& record);

  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  /// Whether there are more than what was wanted allows.
  [[nodiscard]] bool are_too_many() const noexcept {
    return count_ > open_units_max || count_ > free_units + units_of_each_wanted * wanted_;
  }

 private:
  [[nodiscard]] std::size_t units_of(const TraceRecord& record) const noexcept;

  std::size_t layers_;
  std::size_t block_tokens_;  ///< 0 = there are no blocks
  std::size_t count_ = 0;
  std::uint64_t wanted_ = 0;  ///< units, or rows, in all selections
  std::map<std::uint64_t, std::vector<std::size_t>> sequences_;  ///< of each layer
};

}  // namespace terrace::tuning
