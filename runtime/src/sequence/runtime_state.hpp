// All that the sequences of a runtime share: its plan, and its services.
//
//   backend           memory, queues and operations of the device and the host
//   pools             device blocks, memory of steps
//   host              pages of rows, the store below them
//   reclaimer         finds memory where there is none left
//   cluster_threads   cluster, and rate tokens
//   iteration_limits  say how long clustering may take
//   cache_sharers     deal out the resident cache
//   prefixes          that sequences may begin with
//   prompts           how many tokens of prompts are computed in a second
//   counter_file      publishes what all sequences have counted
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "memory/host_tier.hpp"
#include "memory/measured_rate.hpp"
#include "memory/memory_pools.hpp"
#include "memory/reclaimer.hpp"
#include "plan/runtime_plan.hpp"
#include "prefix/prefix_library.hpp"
#include "services/cache_sharers.hpp"
#include "services/cluster_threads.hpp"
#include "services/counter_file.hpp"
#include "services/iteration_limits.hpp"
#include "terrace/core/backend.hpp"
#include "work/sequence_work.hpp"

namespace terrace {

class RuntimeState {
 public:
  static Result<std::unique_ptr<RuntimeState>> create(RuntimeOptions options,
                                                      std::unique_ptr<Backend> backend);

  const RuntimePlan plan;
  const std::unique_ptr<Backend> backend;
  MemoryPools pools;
  const std::unique_ptr<HostTier> host;
  Reclaimer reclaimer;
  ClusterThreads cluster_threads;
  IterationLimits iteration_limits;
  CacheSharers cache_sharers;
  const std::unique_ptr<PrefixLibrary> prefixes;  ///< null = none are kept
  MeasuredRate prompts;
  std::unique_ptr<CounterFile> counter_file;  ///< null = counters are not published

  /// Adds what a sequence has counted to what is published. Nothing else counts meanwhile.
  void add_counters(SequenceWork& work) const {
    if (counter_file != nullptr) counter_file->add(work.counters, work.published);
  }
  /// Publishes counters, if that is due.
  void publish_counters() const;

  void set_limit(Tier tier, std::size_t bytes) noexcept;

  /// Nothing begins any more. Sequences keep the state until they are closed, too.
  void close() noexcept { closed_.store(true, std::memory_order_relaxed); }
  /// Errors: invalid_argument: closed before `who`.
  [[nodiscard]] Status check_open(std::string_view who) const noexcept {
    if (!closed_.load(std::memory_order_relaxed)) return {};
    return fail(Errc::invalid_argument, "the runtime was closed before {}", who);
  }

  [[nodiscard]] SequenceId next_sequence() noexcept {
    return SequenceId{opened_.fetch_add(1, std::memory_order_relaxed)};
  }

 private:
  struct Parts {
    RuntimePlan plan;
    std::unique_ptr<Backend> backend;
    std::unique_ptr<BlockPool> blocks;
    std::unique_ptr<BlockPool> cached_row_blocks;
    std::unique_ptr<HostTier> host;
    std::unique_ptr<Parallel> threads;
    std::unique_ptr<PrefixLibrary> prefixes;
  };
  explicit RuntimeState(Parts parts);
  [[nodiscard]] RuntimeGauges gauges() const;
  /// Errors: those of PrefixLibrary::open. Null where no prefixes can be kept.
  static Result<std::unique_ptr<PrefixLibrary>> open_prefixes(const RuntimePlan& plan,
                                                              const HostTier& host);

  std::atomic<std::uint64_t> opened_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace terrace
