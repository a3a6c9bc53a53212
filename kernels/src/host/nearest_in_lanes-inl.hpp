// The state of a search for a row: the least distance in each of 16 lanes of centroids, and the
// label of that centroid. To be included where the instructions that it compiles to are allowed.
#pragma once

#include <cstdint>
#include <limits>

namespace terrace::kernels::host {

/// A number for each of 16 centroids, or of 16 rows.
using Lanes = float __attribute__((vector_size(64), may_alias));
using LaneLabels = std::uint32_t __attribute__((vector_size(64), may_alias));

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr LaneLabels lane_numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// The code below is compiled for each kind of tiles, because each allows other instructions.

/// Returns the even elements of a, then those of b.
template <typename Tiles, typename Vector>
[[gnu::always_inline]] inline Vector evens(Vector a, Vector b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
template <typename Tiles, typename Vector>
[[gnu::always_inline]] inline Vector odds(Vector a, Vector b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

/// The least distance of a row so far, for each lane of centroids. Its last bits are its label, so
/// that one instruction keeps both. If two distances differ only in those bits, either may win.
/// Labels are below `labels_below`, a power of two.
template <typename Tiles>
struct LabelledDistance {
  Lanes distance;

  [[gnu::always_inline]] void begin() { distance = Lanes{} + infinity; }
  /// `labels` are those of the lanes.
  [[gnu::always_inline]] void lower(Lanes sum, LaneLabels labels, std::uint32_t labels_below) {
    const LaneLabels kept = reinterpret_cast<LaneLabels>(sum) & ~(labels_below - 1);
    // Infinity with a label in its bits is NaN, and never less.
    Tiles::lower(distance, reinterpret_cast<Lanes>(kept | labels));
  }
  /// Returns the lesser of each two lanes of a row, then of each two of the next.
  [[gnu::always_inline]] static LabelledDistance merged(const LabelledDistance& row,
                                                        const LabelledDistance& next) {
    LabelledDistance least{evens<Tiles>(row.distance, next.distance)};
    Tiles::lower(least.distance, odds<Tiles>(row.distance, next.distance));
    return least;
  }
  [[gnu::always_inline]] void read_labels(LaneLabels& labels, std::uint32_t labels_below) const {
    labels = reinterpret_cast<LaneLabels>(distance) & (labels_below - 1);
  }
};

/// The same with its label beside it, ties to the lower one.
template <typename Tiles>
struct DistanceAndLabel {
  Lanes distance;
  LaneLabels label;

  [[gnu::always_inline]] void begin() {
    distance = Lanes{} + infinity;
    label = LaneLabels{};
  }
  [[gnu::always_inline]] void lower(Lanes sum, LaneLabels labels, std::uint32_t /*unused*/) {
    const auto nearer = sum < distance;
    distance = nearer ? sum : distance;
    label = nearer ? labels : label;
  }
  [[gnu::always_inline]] static DistanceAndLabel merged(const DistanceAndLabel& row,
                                                        const DistanceAndLabel& next) {
    const Lanes even = evens<Tiles>(row.distance, next.distance);
    const Lanes odd = odds<Tiles>(row.distance, next.distance);
    const LaneLabels even_label = evens<Tiles>(row.label, next.label);
    const LaneLabels odd_label = odds<Tiles>(row.label, next.label);
    const auto is_odd = (odd < even) | ((odd == even) & (odd_label < even_label));
    return {is_odd ? odd : even, is_odd ? odd_label : even_label};
  }
  [[gnu::always_inline]] void read_labels(LaneLabels& labels, std::uint32_t /*unused*/) const {
    labels = label;
  }
};

}  // namespace terrace::kernels::host
