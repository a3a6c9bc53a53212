#include "host/search_speed.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "host/amx_search.hpp"
#include "host/bf16_search.hpp"
#include "host/centroid_search.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t dims = 64;
constexpr std::size_t row_count = 64;  // and of centroids, which are the rows

template <typename Run>
double fastest_of_some(Run run) {
  using Clock = std::chrono::steady_clock;
  Clock::duration best = Clock::duration::max();
  for (int i = 0; i < 8; ++i) {
    const auto begin = Clock::now();
    run();
    best = std::min(best, Clock::now() - begin);
  }
  return std::chrono::duration<double>(best).count();
}

}  // namespace

FasterSearches measure_searches() noexcept {
  if (!has_bf16_search()) return {};
  alignas(64) std::array<float, row_count * dims> rows;
  rows.fill(1);
  const auto seconds_by = [&](Search by) {
    CentroidSearch search({.rows = {.rows = rows.data(), .row_count = row_count, .dims = dims},
                           .centroids = row_count,
                           .by = by});
    if (!search.allocate()) return std::numeric_limits<double>::infinity();
    if (search.rounds()) search.round_rows(0, row_count);
    search.pack_centroids(rows.data(), Exactness::rounded);
    std::array<std::uint32_t, row_count> labels;
    return fastest_of_some([&] { search.find(0, row_count, 0, labels.data()); });
  };
  // Between the CPUs there are a measurement may not waver.
  constexpr double clearly = 1.3;
  const double in_f32 = seconds_by(Search::f32);
  const double in_bf16 = seconds_by(Search::bf16);
  FasterSearches faster{.bf16 = in_bf16 * clearly < in_f32};
  if (has_amx_search()) {
    faster.amx = seconds_by(Search::amx) * clearly < std::min(in_f32, in_bf16);
  }
  return faster;
}

}  // namespace terrace::kernels::host
