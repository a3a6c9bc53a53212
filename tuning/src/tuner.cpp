#include "terrace/tuning/tuner.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "search_space.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/tuning/optimum.hpp"

namespace terrace::tuning {
namespace {

/// As format_size, but of a size that is no smaller, as far as a config can say one.
std::string format_size_up(std::size_t bytes) {
  for (std::size_t size = bytes;; size += bytes / 1000 + 1) {
    std::string text = format_size(size);
    const Result<std::size_t> said = parse_size(text);
    if (!said || *said >= bytes) return text;
  }
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

/// Choices that share a pass over the file.
struct Job {
  CacheUnit unit;
  std::vector<TunedRow*> rows;
  bool offline = false;
  OptimumBound* bound = nullptr;  ///< to be found on the way
  bool left_out = false;          ///< the future is too much to hold
};

/// How many choices share a pass, at the most.
struct JobSizes {
  std::size_t rows = 1;
  std::size_t offline_rows = 1;
};

/// Bounds what is held in memory at a time, and makes enough jobs for all threads.
JobSizes job_sizes(const TuneRequest& request, const TuneResult& trace, std::size_t threads) {
  constexpr std::size_t rows_most = 12;
  constexpr std::size_t key_bytes = 96;  // that a cache and its policy keep of a unit
  constexpr std::size_t bytes_most = std::size_t{1} << 30;
  const std::size_t replay_bytes = std::max<std::size_t>(1, trace.extent.keys * key_bytes);
  const std::size_t rows =
      std::clamp<std::size_t>(bytes_most / replay_bytes / threads, 1, rows_most);
  // A future holds 4 bytes a selection for a whole job, and 8 for each of its choices.
  const bool few = trace.end.selections <= request.future_selections_max * 12 / (4 + 8 * rows);
  return {.rows = rows, .offline_rows = few ? rows : 1};
}

/// How often what lies beside the best is tried: from a half-life of 64 they reach 27 and 216.
constexpr std::size_t finer_rounds = 3;

/// Passes over the file that a job takes.
std::size_t passes_of(const Job& job) { return job.offline ? 2 : 1; }

/// Reports the progress of the whole search while all threads pass over the file.
class Progress {
 public:
  explicit Progress(const std::function<void(double)>& tell) : tell_(tell) {}

  /// Begins the part of the whole work from `begin` to `end`, which takes `passes` passes.
  void begin(std::size_t passes, double begin, double end) {
    told_ = std::max(told_, begin);
    end_ = end;
    pass_share_ = (end - begin) / static_cast<double>(passes);
  }

  /// `part` of a pass was done since the last call for it.
  void advance(double part) {
    if (!tell_) return;
    const std::lock_guard lock(mutex_);
    told_ = std::min(end_, told_ + part * pass_share_);
    tell_(told_);
  }

 private:
  const std::function<void(double)>& tell_;
  std::mutex mutex_;
  double told_ = 0;
  double end_ = 0;
  double pass_share_ = 0;
};

std::vector<Job> make_jobs(std::vector<TunedRow>& rows, const JobSizes& sizes) {
  std::vector<Job> jobs;
  for (TunedRow& row : rows) {
    const bool room = !jobs.empty() && jobs.back().unit == row.unit() &&
                      jobs.back().offline == row.offline &&
                      jobs.back().rows.size() < (row.offline ? sizes.offline_rows : sizes.rows);
    if (!room) jobs.push_back({.unit = row.unit(), .offline = row.offline});
    jobs.back().rows.push_back(&row);
  }
  return jobs;
}

class Search {
 public:
  Search(const TuneRequest& request, const TuneResult& trace, Parallel& threads)
      : request_(request),
        head_(trace.head),
        costs_(trace.costs),
        sizes_(job_sizes(request, trace, threads.concurrency())),
        threads_(threads),
        progress_(request.progress) {}

  /// Whether rows were left out, because they know a future that is too much to hold.
  [[nodiscard]] bool left_out() const noexcept { return left_out_; }

  /// Replays all rows: of the whole work the part from `begin` to `end`. Leaves rows out that
  /// cannot be replayed.
  Status run(std::vector<TunedRow>& rows, double begin, double end) {
    std::vector<Job> jobs = make_jobs(rows, sizes_);
    std::size_t passes = 0;
    for (Job& job : jobs) {
      passes += passes_of(job);
      const auto [bound, is_new] = bounds_.try_emplace(job.unit, head_, job.unit.granularity);
      if (is_new) job.bound = &bound->second;
    }
    progress_.begin(passes, begin, end);
    TERRACE_TRY(run_jobs(jobs));
    leave_out(jobs, rows);
    for (TunedRow& row : rows) {
      row.optimum_rows = bounds_.at(row.unit()).rows_hit(row.outcome.slot_steps);
    }
    return {};
  }

 private:
  Status run_jobs(std::span<Job> jobs) {
    std::vector<Status> outcomes(jobs.size());
    threads_.for_each(jobs.size(), [&](std::size_t i) {
      if (!jobs[i].offline) outcomes[i] = run_job(jobs[i]);
    });
    for (const Status& outcome : outcomes) TERRACE_TRY(outcome);
    // Only one future is held at a time.
    for (Job& job : jobs) {
      if (job.offline) TERRACE_TRY(run_job(job));
    }
    return {};
  }

  void leave_out(std::span<const Job> jobs, std::vector<TunedRow>& rows) {
    std::vector<CacheUnit> too_many;
    for (const Job& job : jobs) {
      if (job.left_out) too_many.push_back(job.unit);
    }
    const auto left_out = std::erase_if(rows, [&](const TunedRow& row) {
      return row.offline && std::ranges::count(too_many, row.unit()) != 0;
    });
    left_out_ = left_out_ || left_out > 0;
  }

  Result<RecordedFuture> read_future(const CacheUnit& unit) {
    RecordedFuture future(request_.future_selections_max);
    TERRACE_TRY(each_record(unit, [&](const TraceRecord& record, const LayerTraffic& its) {
      future.add(record, its);
    }));
    return future;
  }

  Status run_job(Job& job) {
    RecordedFuture future;
    if (job.offline) {
      TERRACE_ASSIGN(future, read_future(job.unit));
      job.left_out = !future.complete();
      if (job.left_out) return {};
    }
    std::vector<CacheReplay> replays;
    for (const TunedRow* const row : job.rows) {
      TERRACE_ASSIGN(CacheReplay replay,
                     CacheReplay::create(head_, {.cache = row->cache,
                                                 .block_tokens = job.unit.block_tokens,
                                                 .costs = costs_,
                                                 .future = job.offline ? &future : nullptr}));
      replays.push_back(std::move(replay));
    }
    TERRACE_TRY(each_record(job.unit, [&](const TraceRecord& record, const LayerTraffic& its) {
      if (job.bound != nullptr) job.bound->add(record, its);
      for (CacheReplay& replay : replays) replay.apply(record, its);
    }));
    for (std::size_t i = 0; i < replays.size(); ++i) job.rows[i]->outcome = replays[i].outcome();
    return {};
  }

  template <typename Do>
  Status each_record(const CacheUnit& unit, Do&& act) {
    TERRACE_ASSIGN(TraceReader reader, TraceReader::open(request_.trace, TraceCounts::known));
    TERRACE_ASSIGN(TrafficCutter cutter, TrafficCutter::create(head_, unit));
    double read = 0;
    for (TraceRecord record;;) {
      TERRACE_ASSIGN(const bool more, reader.next(record));
      // The file is read by chunks of many records.
      if (const double now = reader.progress(); now != read) {
        progress_.advance(now - read);
        read = now;
      }
      if (!more) return {};
      act(record, cutter.cut(record));
    }
  }

  const TuneRequest& request_;
  const TraceHead& head_;
  const StepCosts& costs_;
  JobSizes sizes_;
  Parallel& threads_;
  Progress progress_;
  bool left_out_ = false;
  std::map<CacheUnit, OptimumBound> bounds_;  ///< by units, all they depend on
};

/// Time, then bytes.
bool better(const TunedRow& a, const TunedRow& b) {
  if (a.offline != b.offline) return b.offline;
  if (a.outcome.seconds != b.outcome.seconds) return a.outcome.seconds < b.outcome.seconds;
  return a.moved_bytes() < b.moved_bytes();
}

/// Best first; of equals the one tried first stays first.
void sort_rows(std::vector<TunedRow>& rows) { std::ranges::stable_sort(rows, better); }

TunedRow make_row(const TraceHead& head, const CacheOptions& cache, const CacheUnit& unit,
                  std::size_t slots) {
  TunedRow row{.cache = cache,
               .block_tokens = unit.block_tokens,
               .slots = slots,
               .offline = policies::needs_foresight(cache.policy)};
  row.cache.tokens = slots * head.slot_tokens(unit);
  row.cache.granularity = unit.granularity;
  return row;
}

/// The part of the whole work that looking through the trace takes.
constexpr double checked_share = 0.02;

/// Returns the head as of a run that offloads. A run that keeps rows resident while they fit leaves
/// its cache an accidental amount of memory, so caches are tuned for runs that offload; the tokens
/// of a trace tell the selections of such a run.
Result<TraceHead> offloaded(TraceHead head) {
  if (head.placement == Placement::offload) return head;
  if (head.unit != TraceUnit::token) {
    return fail(Errc::invalid_argument,
                "the trace names only what a run with placement resident_first had not in device "
                "memory; tune by the one it was converted from, or record one");
  }
  if (head.setting("retrieval.when") == "spilled") {
    return fail(Errc::invalid_argument,
                "with retrieval.when spilled the run selected nothing from what was resident; "
                "record one with retrieval.when always");
  }
  head.placement = Placement::offload;
  // Only those members of clusters were recorded that were not resident.
  head.slot_rows = 0;
  std::erase_if(head.settings, [](const auto& setting) { return setting.first == "placement"; });
  return head;
}

/// Checks the trace and learns what decides how large a cache may be, and what steps cost.
Status read_whole(const TuneRequest& request, TuneResult& result) {
  TERRACE_ASSIGN(TraceReader reader, TraceReader::open(request.trace));
  ExtentCounter counter(reader.head());
  TERRACE_TRY(reader.for_each([&](const TraceRecord& record) {
    counter.add(record);
    if (request.progress) request.progress(checked_share * reader.progress());
  }));
  TERRACE_ASSIGN(result.head, offloaded(reader.head()));
  result.end = reader.end();
  result.extent = counter.extent();
  result.costs = request.costs;
  if (request.find_costs) {
    TERRACE_ASSIGN(result.costs, request.find_costs(result.head, result.end));
  }
  return {};
}

Result<std::vector<TunedRow>> first_rows(const TuneRequest& request, TuneResult& result) {
  TERRACE_ASSIGN(const auto choices, cache_choices(request.policies));
  std::vector<TunedRow> rows;
  std::size_t least = SIZE_MAX;
  for (const CacheUnit& unit : cache_units(result.head)) {
    const MemoryPlan plan = plan_memory(result.head, result.end, result.extent, unit);
    least = std::min(least, plan.least_memory());
    const std::size_t slots = plan.slots(request.device_memory);
    if (slots == 0) continue;
    for (const CacheOptions& choice : choices) {
      if (!can_cache(choice, unit)) continue;
      rows.push_back(make_row(result.head, choice, unit, slots));
    }
  }
  if (rows.empty()) {
    return fail(Errc::invalid_argument,
                "--device-memory {}: sinks, window, index and staging leave no room for a cache; "
                "give at least {}",
                format_size(request.device_memory), format_size_up(least));
  }
  return rows;
}

/// Returns the rows not yet tried beside the best of each policy, where that is nearly as good as
/// the best of all.
std::vector<TunedRow> rows_beside_the_best(const TuneResult& result) {
  constexpr double nearly = 1.1;
  std::vector<TunedRow> beside;
  std::vector<std::string> seen;
  for (const TunedRow& row : result.rows) {
    const bool good =
        !row.offline && row.outcome.seconds <= nearly * result.rows.front().outcome.seconds;
    if (!good || std::ranges::count(seen, row.cache.policy) != 0) continue;
    seen.push_back(row.cache.policy);
    for (const CacheOptions& cache : settings_beside(row.cache)) {
      const bool tried = std::ranges::any_of(result.rows, [&](const TunedRow& other) {
        return other.cache == cache && other.block_tokens == row.block_tokens;
      });
      if (!tried) beside.push_back(make_row(result.head, cache, row.unit(), row.slots));
    }
  }
  return beside;
}

/// The best of each policy, with caches from an eighth to four times as large.
std::vector<TunedRow> curve_rows(const TuneResult& result, std::size_t device_memory) {
  std::vector<TunedRow> curve;
  std::vector<std::string> seen;
  for (const TunedRow& row : result.rows) {
    if (std::ranges::count(seen, row.cache.policy) != 0) continue;
    seen.push_back(row.cache.policy);
    const MemoryPlan plan = plan_memory(result.head, result.end, result.extent, row.unit());
    std::size_t last = 0;
    for (const double factor : {0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0}) {
      const auto slots = std::min(static_cast<std::size_t>(factor * static_cast<double>(row.slots)),
                                  plan.slots_useful);
      if (slots == last || slots == 0) continue;
      last = slots;
      curve.push_back(make_row(result.head, row.cache, row.unit(), slots));
      curve.back().fits = slots <= plan.slots(device_memory);
    }
  }
  return curve;
}

/// No cache, with all units that fit: bytes differ where blocks are cut.
std::vector<TunedRow> rows_without_cache(const TuneResult& result, std::size_t device_memory) {
  std::vector<TunedRow> rows;
  for (const CacheUnit& unit : cache_units(result.head)) {
    if (!plan_memory(result.head, result.end, result.extent, unit).fits(device_memory)) continue;
    rows.push_back(make_row(result.head, {.policy = "none"}, unit, 0));
  }
  return rows;
}

/// Searches beside the best rows, with finer settings in each round.
Status refine(Search& search, TuneResult& result, double begin, double end) {
  const double share = (end - begin) / static_cast<double>(finer_rounds);
  for (std::size_t round = 0; round < finer_rounds; ++round) {
    std::vector<TunedRow> beside = rows_beside_the_best(result);
    if (beside.empty()) break;
    TERRACE_TRY(search.run(beside, begin, begin + share));
    begin += share;
    std::ranges::move(beside, std::back_inserter(result.rows));
    sort_rows(result.rows);
  }
  return {};
}

}  // namespace

double TunedRow::hit_rate_tokens() const noexcept {
  return ratio(static_cast<double>(outcome.cache.rows_hit), static_cast<double>(rows()));
}

double TunedRow::hit_rate_units() const noexcept {
  const CacheCounters& counted = outcome.cache;
  return ratio(static_cast<double>(counted.blocks_hit),
               static_cast<double>(counted.blocks_hit + counted.blocks_missed));
}

std::optional<double> TunedRow::optimum_ratio() const noexcept {
  if (cache.none() || !(optimum_rows > 0)) return std::nullopt;
  return static_cast<double>(outcome.cache.rows_hit) / optimum_rows;
}

double TunedRow::seconds_per_token() const noexcept {
  return ratio(outcome.seconds, static_cast<double>(outcome.steps));
}

Result<TuneResult> tune(const TuneRequest& request, Parallel& threads) {
  TuneResult result;
  TERRACE_TRY(read_whole(request, result));
  if (result.end.rows == 0) {
    return fail(Errc::invalid_argument,
                "{}: the trace holds no selection, so there is nothing to "
                "tune",
                request.trace.string());
  }
  TERRACE_ASSIGN(result.rows, first_rows(request, result));
  Search search(request, result, threads);
  TERRACE_TRY(search.run(result.rows, checked_share, 0.6));
  sort_rows(result.rows);
  TERRACE_TRY(refine(search, result, 0.6, 0.8));
  result.curve = curve_rows(result, request.device_memory);
  TERRACE_TRY(search.run(result.curve, 0.8, 0.95));
  std::vector<TunedRow> none = rows_without_cache(result, request.device_memory);
  TERRACE_TRY(search.run(none, 0.95, 1));
  result.without_cache = *std::ranges::min_element(none, better);
  // A smaller cache may be the better one: what fits was searched too.
  for (const TunedRow& row : result.curve) {
    const MemoryPlan plan = plan_memory(result.head, result.end, result.extent, row.unit());
    if (row.slots < plan.slots(request.device_memory) && !row.offline) result.rows.push_back(row);
  }
  sort_rows(result.rows);
  result.offline_left_out = search.left_out();
  result.future_selections_max = request.future_selections_max;
  const MemoryPlan plan =
      plan_memory(result.head, result.end, result.extent, result.recommended().unit());
  result.fixed_bytes = plan.fixed_bytes + plan.step_bytes(request.device_memory);
  return result;
}

Config tuned_config(const TuneResult& result, const TunedRow& row, std::size_t device_memory) {
  Config config;
  const auto set = [&](std::string_view key, const std::string& text) {
    const Status accepted = config.set(key, text, {ConfigOrigin::file, "terrace tune"});
    TERRACE_ASSERT(accepted.has_value());
  };
  for (const auto& [key, text] : result.head.settings) {
    set(key, text);
  }
  if (!result.head.policy.empty()) {
    set("retrieval.policy", result.head.policy);
    set("retrieval.budget", result.head.budget);
    set("kv.dtype", std::string(to_string(result.head.shape.dtype)));
    set("kv.block_tokens", std::to_string(row.block_tokens));
  }
  set("device.memory", std::to_string(device_memory));
  set("cache.policy", row.cache.policy);
  set("cache.admission", row.cache.admission);
  set("cache.granularity", std::string(to_string(row.cache.granularity)));
  set("cache.tokens", std::to_string(row.cache.tokens));
  set("cache.horizon", fmt::format("{}", row.cache.refill.horizon_steps));
  if (const auto setting = policies::replacement_setting(row.cache.policy)) {
    set(setting->key, std::to_string(row.cache.replacement.*setting->value));
  }
  return config;
}

}  // namespace terrace::tuning
