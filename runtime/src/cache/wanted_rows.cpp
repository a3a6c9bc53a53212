#include "wanted_rows.hpp"

#include <bit>
#include <utility>

#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

constexpr std::size_t bits = 64;

}  // namespace

void WantedRows::begin(std::size_t units, std::size_t places) {
  for (std::size_t i = 0; i < touched_count_; ++i) chains_[touched_[i]] = {};
  touched_count_ = 0;
  if (chains_.size() < units) {
    chains_.resize(units);
    marks_.resize(divide_up(units, bits));
  }
  if (before_.size() < places) {
    before_.resize(places);
    touched_.resize(places + 1);
  }
}

std::span<const UnitKey> WantedRows::units() {
  for (std::size_t i = 0; i < touched_count_; ++i) {
    marks_[touched_[i] / bits] |= std::uint64_t{1} << touched_[i] % bits;
  }
  auto next = touched_.begin();
  for (std::size_t word = 0; word < marks_.size(); ++word) {
    for (std::uint64_t left = std::exchange(marks_[word], 0); left != 0; left &= left - 1) {
      *next++ = static_cast<UnitKey>(word * bits) + static_cast<UnitKey>(std::countr_zero(left));
    }
  }
  return std::span(touched_).first(touched_count_);
}

}  // namespace terrace
