// A trace that lies in memory: what the benches of the cache replay.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "terrace/core/result.hpp"
#include "terrace/tuning/layer_traffic.hpp"

namespace terrace::bench {

struct Trace {
  std::string name;
  tuning::TraceHead head;
  std::vector<tuning::TraceRecord> records;
  std::uint64_t units = 0;  ///< wanted, over all layers and steps
  std::uint64_t slots = 0;  ///< that those take
  bool truncated = false;   ///< the file holds more than was read

  /// Returns the capacity, in tokens per layer, of `times` the slots that a layer wants in a step.
  [[nodiscard]] std::size_t capacity_tokens(std::size_t times) const;

  /// Returns the capacity, in tokens per layer, of `times` the tokens that a step may select: where
  /// whole blocks are kept for a few of their tokens, much less than what a step wants.
  [[nodiscard]] std::size_t selected_capacity_tokens(std::size_t times) const;

  /// Cuts the selections and calls act(record, traffic) for every record.
  template <typename Act>
  Status each_record(Act&& act) const {
    TERRACE_ASSIGN(auto cutter, tuning::TrafficCutter::create(head, head.recorded()));
    for (const tuning::TraceRecord& record : records) act(record, cutter.cut(record));
    return {};
  }
};

/// The most wanted units that are read of a trace, because they lie in memory.
inline constexpr std::uint64_t units_max = 2'000'000;

/// Reads a trace up to the step in which it has wanted `most` units; without a name makes up
/// selections that drift. Errors: those of the file.
Result<std::shared_ptr<const Trace>> load_trace(const std::string& file, bool quick,
                                                std::uint64_t most = units_max);

}  // namespace terrace::bench
