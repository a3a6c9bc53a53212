// What a trace still holds, for the offline optimum: when each unit is wanted next.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "terrace/core/replacement.hpp"
#include "terrace/tuning/layer_traffic.hpp"

namespace terrace::tuning {

/// The wanted units of each layer of each sequence. Memory: 4 bytes a selection.
class RecordedFuture {
 public:
  /// Adds a selection; other records say nothing.
  void add(const TraceRecord& record, const LayerTraffic& traffic);

  struct Wants {
    std::vector<std::uint64_t> step_begin;  ///< of step i in `units`
    std::vector<UnitKey> units;
  };

  /// Returns what a layer wanted; it must have been added.
  [[nodiscard]] const Wants& of(std::uint64_t sequence, std::size_t layer) const;

 private:
  std::map<std::pair<std::uint64_t, std::size_t>, Wants> wants_;
};

/// One layer's future as seen from the step under way.
class LayerFuture final : public Foresight {
 public:
  explicit LayerFuture(const RecordedFuture::Wants& wants);

  /// Goes on to the next step: from now on units that it wants are seen behind it.
  void advance();

  [[nodiscard]] std::uint64_t next_step(UnitKey key) const noexcept override {
    return key < next_.size() ? next_[key] : never;
  }

 private:
  const RecordedFuture::Wants& wants_;
  std::vector<std::uint64_t> next_;    ///< by unit
  std::vector<std::uint64_t> behind_;  ///< by selection: the step that wants the unit again
  std::uint64_t step_ = 0;
};

}  // namespace terrace::tuning
