// The memory of a resident cache's own records: bytes for each unit that it may be asked for, with
// admission by refill, the larger of the two.

#include "cache/questions.hpp"
#include "terrace/runtime/cache_options.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t unit_count = 4096;

/// Asks for all units at once, which takes the most room, and again, when half of them hit.
Result<policies::ResidentCache> used_cache(const CacheOptions& options) {
  TERRACE_ASSIGN(auto cache, make_resident_cache(options, unit_count / 2, unit_count));
  std::vector<policies::WantedUnit> wanted(unit_count);
  for (UnitKey key = 0; key < unit_count; ++key) wanted[key] = {.unit = key, .rows_wanted = 1};
  policies::CachePlan plan;
  for (int step = 0; step < 2; ++step) cache.plan_step(wanted, plan);
  return cache;
}

Question question(const policies::ReplacementEntry& entry) {
  const CacheOptions options{.policy = std::string(entry.name), .admission = "refill"};
  const auto count = [options](Row& row) -> Status {
    TERRACE_ASSIGN(const policies::ResidentCache cache, used_cache(options));
    row.value = static_cast<double>(cache.state_bytes()) / unit_count;
    row.samples = unit_count;
    return {};
  };
  return {.name = "cache_memory_" + options.policy,
          .unit = "B",
          .better = Better::lower,
          .parameters = {{"units", unit_count}, {"admission", options.admission}},
          .prepare = {},
          .count = count};
}

}  // namespace

std::vector<Question> state_questions() {
  std::vector<Question> questions;
  for (const policies::ReplacementEntry& entry : policies::replacement_policies()) {
    if (!entry.needs_foresight) questions.push_back(question(entry));
  }
  return questions;
}

}  // namespace terrace::bench
