// Counts which units of a cache the rows of a selection belong to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "wanted_rows.hpp"

namespace terrace {

class ClusterMembers;
class Layer;
class RuntimePlan;
class SequenceProgress;
struct SelectionBuffers;
struct SequenceCounters;

/// Rows belong to blocks of so many tokens, or to clusters.
struct RowUnits {
  std::size_t count = 0;  ///< keys are below it
  std::size_t block_tokens = 0;
  const ClusterMembers* clusters = nullptr;  ///< null = blocks
};

class SelectionCount {
 public:
  SelectionCount(const RuntimePlan& plan, const SequenceProgress& progress) noexcept
      : plan_(plan), progress_(progress) {}

  /// Counts the layer's selection as the host has it: rows by unit here, all else in `counters`.
  void count(const Layer& layer, const RowUnits& units, SequenceCounters& counters);

  /// Counts the layer's selection where the device keeps rows by itself. `keeps`: it had slots.
  void count_slots(const Layer& layer, bool keeps, SequenceCounters& counters);

  /// The rows that are the cache's business.
  [[nodiscard]] WantedRows& rows() noexcept { return rows_; }

 private:
  /// Counts entries of the layer's lists, and the rows that were missed. Returns the entries.
  std::uint64_t count_entries(const SelectionBuffers& lists, SequenceCounters& counters) const;
  /// Returns how many rows of a list are no business of the cache.
  std::size_t count_list(const Layer& layer, std::size_t list, const RowUnits& units);

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  WantedRows rows_;
  std::vector<std::uint64_t> seen_;  ///< [kv_heads, positions]: when last; if lists overlap
  std::uint64_t epoch_ = 0;
};

}  // namespace terrace
