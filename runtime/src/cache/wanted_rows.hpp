// The rows that a step wants of each unit of a cache: how many, and where its selection lists them.
//
//   rows.begin(units, places);
//   rows.add(unit, place);  ...                       // row by row, in the order of the places
//   for (UnitKey unit : rows.units()) rows.count(unit), rows.for_each_place(unit, ...);
//
// A step wants a thousand rows of a layer and has some microseconds for them. So a row costs two
// loads, three stores and no branch; each unit's rows are chained through their places, which lie
// side by side; units are sorted by a bit each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/replacement.hpp"

namespace terrace {

class WantedRows {
 public:
  /// Forgets all rows. Units are below `units` from now on, places below `places`.
  void begin(std::size_t units, std::size_t places);

  /// Notes that the row at a place belongs to a unit. Places rise; none is named twice.
  void add(UnitKey unit, std::uint32_t place) noexcept {
    Chain& chain = chains_[unit];
    touched_[touched_count_] = unit;
    touched_count_ += chain.rows == 0 ? 1 : 0;
    before_[place] = chain.last;
    chain = {.rows = chain.rows + 1, .last = place};
  }

  /// Returns the units that have rows, in rising order. No add() may follow before the next
  /// begin().
  [[nodiscard]] std::span<const UnitKey> units();

  [[nodiscard]] std::uint32_t count(UnitKey unit) const noexcept { return chains_[unit].rows; }

  /// Calls visit(place) for each row of a unit, the last one first.
  template <typename Visit>
  void for_each_place(UnitKey unit, Visit visit) const {
    std::uint32_t place = chains_[unit].last;
    for (std::uint32_t left = chains_[unit].rows; left > 0; --left) {
      visit(place);
      place = before_[place];
    }
  }

 private:
  struct Chain {
    std::uint32_t rows = 0;
    std::uint32_t last = 0;  ///< place
  };

  std::vector<Chain> chains_;          ///< per unit; no rows but of touched ones
  std::vector<std::uint32_t> before_;  ///< per place: that of the unit's row before
  std::vector<UnitKey> touched_;       ///< of a place more than there are: add() writes ahead
  std::size_t touched_count_ = 0;
  std::vector<std::uint64_t> marks_;  ///< a bit per unit; zero but while they are sorted
};

}  // namespace terrace
