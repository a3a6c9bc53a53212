#include "pcie/row_places.hpp"

#include <algorithm>
#include <numeric>

#include "terrace/core/rng.hpp"

namespace terrace::bench {

std::vector<std::uint32_t> row_places(std::size_t there, std::size_t count, bool scattered) {
  std::vector<std::uint32_t> places(count);
  std::iota(places.begin(), places.end(), 0U);
  if (!scattered) return places;
  constexpr std::size_t run_max = 4;
  Rng rng(7);
  std::size_t at = 0;
  for (std::size_t done = 0; done < count;) {
    const std::size_t left = count - done;
    const std::size_t runs_left = std::max<std::size_t>(2 * left / (run_max + 1), 1);
    const std::size_t slack = there - at - left;  // rows that may still be skipped
    at += std::min(slack, static_cast<std::size_t>(rng.below(2 * slack / runs_left + 1)));
    const std::size_t run = std::min(left, 1 + static_cast<std::size_t>(rng.below(run_max)));
    for (std::size_t i = 0; i < run; ++i) places[done++] = static_cast<std::uint32_t>(at++);
  }
  return places;
}

}  // namespace terrace::bench
