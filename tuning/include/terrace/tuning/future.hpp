// The future of a trace, for Belady's rule: when each unit is wanted next.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "terrace/core/replacement.hpp"
#include "terrace/tuning/layer_traffic.hpp"

namespace terrace::tuning {

/// The selections that a machine of some gigabytes can hold, at the 12 bytes that a replay keeps of
/// each.
inline constexpr std::uint64_t future_selections_max = 50'000'000;

/// The wanted units of each layer of each sequence, closed ones too. Memory: 4 bytes a selection,
/// 8 a layer and step.
class RecordedFuture {
 public:
  /// Selections beyond `selections_max` are not kept.
  explicit RecordedFuture(
      std::uint64_t selections_max = std::numeric_limits<std::uint64_t>::max()) noexcept
      : selections_max_(selections_max) {}

  /// Adds what a selection wants, and the layer of a step that was given up.
  void add(const TraceRecord& record, const LayerTraffic& traffic);

  struct Wants {
    std::vector<std::size_t> step_begin;  ///< of step i in `units`
    std::vector<UnitKey> units;
    std::vector<std::size_t> renamed;  ///< steps from which on units' keys mean others; ascending
  };

  /// Whether it holds all that was added.
  [[nodiscard]] bool complete() const noexcept { return selections_ <= selections_max_; }

  /// Returns what a layer wanted; it must have been added.
  [[nodiscard]] const Wants& of(std::uint64_t sequence, std::size_t layer) const;

 private:
  ByLayer<Wants> wants_;
  std::uint64_t selections_max_;
  std::uint64_t selections_ = 0;
};

/// One layer's future as seen from the step under way. A unit has no future beyond a renaming.
/// Memory: 8 bytes a unit, and 8 for each selection between two renamings.
class LayerFuture final : public Foresight {
 public:
  explicit LayerFuture(const RecordedFuture::Wants& wants);

  /// Advances to the next step: from now on the future is the one after that step.
  void advance();

  [[nodiscard]] std::uint64_t next_step(UnitKey key) const noexcept override {
    return key < next_.size() ? next_[key] : never;
  }

 private:
  [[nodiscard]] std::size_t begin_of(std::size_t step) const noexcept;
  void look_ahead();

  const RecordedFuture::Wants& wants_;
  std::size_t step_ = 0;               ///< the next one
  std::size_t names_end_ = 0;          ///< the step at which units are renamed next
  std::size_t first_ = 0;              ///< selection since the last renaming
  std::vector<std::uint64_t> next_;    ///< by unit
  std::vector<std::uint64_t> behind_;  ///< from first_ on: the step that wants the unit again
};

}  // namespace terrace::tuning
