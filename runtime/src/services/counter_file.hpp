// Sums what all sequences of a runtime count, and publishes it in a file: metrics in the text
// format of Prometheus, which its node exporter collects, and `terrace stats` prints.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "terrace/core/backend.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/runtime/counters.hpp"
#include "terrace/runtime/prefix.hpp"

namespace terrace {

/// How a runtime is, beside what its sequences count.
struct RuntimeGauges {
  MemoryUsage device = {};
  MemoryUsage host = {};
  PrefixCounters prefixes = {};
};

/// Threads  safe from any thread
class CounterFile {
 public:
  using Gauges = FunctionRef<RuntimeGauges()>;

  /// Writes the file. Errors: io_error naming it.
  static Result<std::unique_ptr<CounterFile>> open(std::string path, const Clock& clock,
                                                   Gauges gauges);
  CounterFile(const CounterFile&) = delete;
  CounterFile& operator=(const CounterFile&) = delete;
  /// Removes the file: nobody counts any more.
  ~CounterFile();

  void enter_sequence() noexcept { sequences_.fetch_add(1, std::memory_order_relaxed); }
  void leave_sequence() noexcept { sequences_.fetch_sub(1, std::memory_order_relaxed); }

  /// Adds what a sequence has counted since `added`, which becomes `now`.
  void add(const SequenceCounters& now, SequenceCounters& added);

  /// Writes the file anew where the last one is a second old. A file that cannot be written stays
  /// as it was.
  void write_if_due(Gauges gauges);

 private:
  CounterFile(std::string path, const Clock& clock);
  [[nodiscard]] std::string text(const RuntimeGauges& gauges) const;

  const std::string path_;
  const Clock& clock_;
  std::atomic<std::size_t> sequences_{0};
  mutable std::mutex mutex_;  ///< guards sums
  std::vector<double> sums_;
  std::mutex writing_;  ///< held while the file is written; guards the time
  TimePoint written_{};
  bool is_there_ = false;
};

}  // namespace terrace
