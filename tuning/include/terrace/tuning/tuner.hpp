// Finds out from a trace which cache serves it best in a given amount of device memory.
//
// Every choice of replacement policy, admission and what is cached as one (blocks of some size, or
// clusters) is replayed, with the cache as large as the memory leaves room for; then what lies
// beside the best of each policy, and the best ones once more with smaller and larger caches.
// Choices of the same units share passes over the file. Therefore memory grows with the sequences
// that are open at a time, not with the trace. The exception is Belady's rule, which holds every
// selection (future.hpp) and is left out if there are too many.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "terrace/core/config.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/tuning/page.hpp"
#include "terrace/tuning/replay.hpp"
#include "terrace/tuning/trace_extent.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {

struct TuneRequest {
  std::filesystem::path trace;
  std::size_t device_memory = 0;      ///< for sinks, window, index, staging and cache
  std::vector<std::string> policies;  ///< `all`, or an empty list, means every policy
  StepCosts costs;
  /// Makes the costs from the record, in place of `costs`. tune() returns its errors.
  std::function<Result<StepCosts>(const TraceHead&, const TraceEnd&)> find_costs;
  /// Belady's rule must hold all selections of units: it leaves out units with more selections than
  /// this.
  std::uint64_t future_selections_max = tuning::future_selections_max;
  /// Called with the share of the work that is done, which never falls, as the trace is read: from
  /// any thread, one at a time.
  std::function<void(double)> progress;
};

/// A choice and its result. For imported requests, a token's figures are those of a request.
struct TunedRow {
  CacheOptions cache;
  std::size_t block_tokens = 0;
  std::size_t slots = 0;  ///< per layer; 0 = no cache
  ReplayOutcome outcome;
  double optimum_rows = 0;  ///< no cache of as many slots hits more
  bool offline = false;     ///< knows the future: for comparison only, and may be beaten
  bool fits = true;         ///< false: a point of the curve beyond the memory given

  [[nodiscard]] CacheUnit unit() const noexcept { return {cache.granularity, block_tokens}; }
  [[nodiscard]] std::uint64_t rows() const noexcept {
    return outcome.cache.rows_hit + outcome.cache.rows_missed;
  }
  [[nodiscard]] double hit_rate_tokens() const noexcept;
  [[nodiscard]] double hit_rate_units() const noexcept;
  /// Hits over `optimum_rows`; nothing without a cache, or where no cache could hit.
  [[nodiscard]] std::optional<double> optimum_ratio() const noexcept;
  [[nodiscard]] double seconds_per_token() const noexcept;
  [[nodiscard]] std::uint64_t moved_bytes() const noexcept {
    return outcome.bytes.demand + outcome.bytes.refill;
  }
};

/// Predicted times that differ by no more are a tie: no prediction is that exact (decision 0067).
inline constexpr double tie_share = 0.01;

struct TuneResult {
  TraceHead head;
  TraceEnd end;
  TraceExtent extent;
  StepCosts costs;
  std::vector<TunedRow> rows;     ///< what was searched, best first
  std::vector<TunedRow> curve;    ///< the best of each policy over capacities, ascending
  TunedRow without_cache;         ///< with the units that serve it best
  bool offline_left_out = false;  ///< for policies that know the future some units are too many
  std::uint64_t future_selections_max = 0;  ///< as asked for
  std::size_t fixed_bytes = 0;              ///< of device memory, with the recommended units

  /// Whether a row's time is the least, or ties with it; never of what knows the future.
  [[nodiscard]] bool tied_with_best(const TunedRow& row) const;

  /// The simplest of what ties with the best: no cache, else of the policy that comes first among
  /// policies::replacement_policies() what moves the fewest bytes.
  [[nodiscard]] const TunedRow& recommended() const;

  /// The other policies that tie with the best, in the order of their best rows.
  [[nodiscard]] std::vector<std::string> tied_policies() const;
};

/// Searches. Deterministic: the same rows for any number of threads.
///
/// Errors   those of the trace and of its costs; invalid_argument: a memory that sinks, window and
///          index alone exceed, an unknown policy, nothing to search, a trace without selections
[[nodiscard]] Result<TuneResult> tune(const TuneRequest& request, Parallel& threads);

/// Returns the config that makes `terrace run` do what a row says.
[[nodiscard]] Config tuned_config(const TuneResult& result, const TunedRow& row,
                                  std::size_t device_memory);

/// Returns a choice in words: "lru, admission always, blocks of 32 tokens, 512 tokens a layer".
[[nodiscard]] std::string describe(const TunedRow& row);

/// Returns a policy's parameters in words, its admission first: "refill, horizon 32, R 2".
[[nodiscard]] std::string parameters_of(const CacheOptions& cache);

/// Returns what is cached as one, for a column of a table: tokens of a block, or "cluster".
[[nodiscard]] std::string unit_of(const TunedRow& row);

/// Returns what was replayed, in words: "24 steps of 4 layers, 900 units wanted, policy wave, ...".
[[nodiscard]] std::string describe_trace(const TuneResult& result);

/// Returns the policies that tie with the recommended one, and why it is taken; empty if no policy
/// ties.
[[nodiscard]] std::string describe_tie(const TuneResult& result);

/// Returns why policies that know the future are missing from a result; empty where they are not.
[[nodiscard]] std::string describe_left_out(const TuneResult& result);

/// Returns a page that needs no network: the table and drawings of the result, and the recommended
/// config. `machine` says in words where the costs come from.
[[nodiscard]] std::string report_page(const TuneResult& result, const TuneRequest& request,
                                      std::string_view machine, const PageOrigin& origin = {});

}  // namespace terrace::tuning
