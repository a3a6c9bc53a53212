#include "terrace/tuning/optimum.hpp"

#include <algorithm>
#include <cmath>

namespace terrace::tuning {
namespace {

// Worths from 2^-32 to 2^32 rows per slot-step, 32 classes an octave.
constexpr int classes_per_octave = 32;
constexpr int octaves_below = 32;
constexpr int class_count = 2 * octaves_below * classes_per_octave;

std::size_t class_of(double worth) {
  const double place = (std::log2(worth) + octaves_below) * classes_per_octave;
  return static_cast<std::size_t>(std::clamp(place, 0.0, class_count - 1.0));
}

/// The least worth of a class.
double worth_of(std::size_t at) {
  return std::exp2(static_cast<double>(at) / classes_per_octave - octaves_below);
}

}  // namespace

OptimumBound::OptimumBound(const TraceHead& head, CacheGranularity granularity)
    : layers_per_record_(static_cast<double>(head.layers_per_record())),
      blocks_are_adopted_(granularity == CacheGranularity::block && !head.has_sizes(granularity) &&
                          head.placement == Placement::offload),
      by_worth_(class_count) {}

void OptimumBound::add(const TraceRecord& record, const LayerTraffic& traffic) {
  if (record.kind == TraceRecord::Kind::close) return erase_sequence(layers_, record.sequence);
  const bool loads = record.kind == TraceRecord::Kind::load;
  if (!loads && record.kind != TraceRecord::Kind::selection) return;
  Layer& layer = layers_[{record.sequence, record.layer}];
  if (loads) {
    layer.passed = traffic.window_begin;
  } else {
    select(layer, traffic);
  }
}

void OptimumBound::select(Layer& layer, const LayerTraffic& traffic) {
  // Units that were there have other names now, and are dropped.
  if (traffic.renamed) layer.since.clear();
  if (layer.since.size() < traffic.keys) layer.since.resize(traffic.keys);
  ++layer.step;
  if (blocks_are_adopted_) {
    // A block that has just left the window can be resident from the step before on.
    for (std::size_t block = layer.passed; block < traffic.window_begin; ++block) {
      layer.since[block] = layer.step;
    }
    layer.passed = std::max(layer.passed, traffic.window_begin);
  }
  for (const policies::WantedUnit& each : traffic.wanted) {
    std::uint64_t& since = layer.since[each.unit];
    if (since != 0) {
      const auto steps = static_cast<double>(layer.step + 1 - since);
      const double slot_steps = layers_per_record_ * steps * each.slots;
      const double rows = layers_per_record_ * each.rows_wanted;
      Intervals& alike = by_worth_[class_of(rows / slot_steps)];
      alike.rows += rows;
      alike.slot_steps += slot_steps;
    }
    since = layer.step + 1;
  }
}

double OptimumBound::rows_hit(std::uint64_t slot_steps) const {
  const auto room = static_cast<double>(slot_steps);
  double rows = 0;
  double taken = 0;
  double best = HUGE_VAL;
  // At the price of a class's least worth, it and all above it are chosen.
  for (std::size_t at = by_worth_.size(); at-- > 0;) {
    rows += by_worth_[at].rows;
    taken += by_worth_[at].slot_steps;
    best = std::min(best, rows + worth_of(at) * (room - taken));
  }
  return std::min(best, rows);
}

}  // namespace terrace::tuning
