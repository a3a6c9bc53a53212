#include "runtime/memory_life.hpp"

#include <algorithm>
#include <numeric>

#include "api/sequence_state.hpp"
#include "runtime/batch.hpp"

namespace terrace::testing {
namespace {

/// All members with so many tokens each.
std::vector<BatchMember> all_with(const MemoryLife& life, std::size_t tokens) {
  std::vector<BatchMember> members;
  for (std::size_t i = 0; i < life.members; ++i) members.push_back({i, tokens});
  return members;
}

void give_prompt(const MemoryLife& life, std::size_t tokens, Batch& batch, MemoryMeter& meter) {
  for (std::size_t i = 0; i < life.members; ++i) {
    ASSERT_TRUE(batch.sequence(i).begin_prompt(tokens).has_value());
  }
  for (std::size_t done = 0; done < tokens; done += life.piece) {
    batch.expect_step(all_with(life, std::min(life.piece, tokens - done)));
    meter.look(batch.sequence(0));
  }
}

void expect_between(std::size_t taken, std::size_t said, double most, const char* tier) {
  constexpr std::size_t of_small_tables = 12U << 10U;
  EXPECT_LE(taken, said) << tier;
  EXPECT_LE(said, static_cast<std::size_t>(most * static_cast<double>(taken)) + of_small_tables)
      << tier;
}

}  // namespace

MemoryMeter::MemoryMeter(Runtime& runtime)
    : backend_(runtime.backend()),
      before_{backend_.memory(Tier::device).in_use, backend_.memory(Tier::host).in_use} {}

void MemoryMeter::look(Sequence& any) {
  const offload::HostPagePool& pages = state_of(any).runtime().host->pages();
  page_bytes_ = std::max(page_bytes_, pages.pages_in_use() * pages.page_bytes());
  region_bytes_ = pages.page_count() * pages.page_bytes();
}

TakenMemory MemoryMeter::taken() const {
  const std::size_t host = backend_.memory(Tier::host).peak - before_.host;
  return {backend_.memory(Tier::device).peak - before_.device, host - region_bytes_ + page_bytes_};
}

NeedQuery MemoryLife::query() const {
  const auto later =
      prompts.size() > 1 ? std::max_element(prompts.begin() + 1, prompts.end()) : prompts.end();
  return {.tokens = std::accumulate(prompts.begin(), prompts.end(), decoded),
          .step_tokens = piece,
          .prompt_tokens = prompts.front(),
          .draft_tokens = draft,
          .later_prompt_tokens = later == prompts.end() ? 0 : *later,
          .queries = queries,
          .cache_sharers = members};
}

TakenMemory take_memory(Runtime& runtime, const MemoryLife& life) {
  MemoryMeter meter(runtime);
  Batch batch(runtime, life.members);
  batch.round_queries(life.queries, life.queries == Dtype::f32);
  for (const std::size_t prompt : life.prompts) {
    give_prompt(life, prompt, batch, meter);
    const std::size_t tokens = life.decoded / life.prompts.size();
    for (std::size_t done = 0; done < tokens; done += life.draft) {
      batch.expect_step(all_with(life, std::min(life.draft, tokens - done)));
      meter.look(batch.sequence(0));
    }
  }
  return meter.taken();
}

std::size_t said_of_device(const MemoryLife& life, const MemoryNeed& need) {
  return life.members * need.device_own() + need.device_shared;
}

void expect_said(const MemoryLife& life, double most) {
  const TakenMemory taken = take_memory(*life.scenario.open(), life);
  const Result<MemoryNeed> need = life.scenario.open()->memory_need(life.query());
  ASSERT_TRUE(need.has_value()) << need.error().message();
  expect_between(taken.device, said_of_device(life, *need), most, "device");
  expect_between(taken.host, life.members * need->host(), most, "host");
}

Scenario memory_scenario(const std::string& policy) {
  Scenario scenario;
  scenario.runtime.policy = policy;
  scenario.runtime.shape = {.layers = 4, .query_heads = 4, .kv_heads = 2, .head_dim = 32};
  scenario.runtime.budget.value = 300;
  scenario.runtime.sink_tokens = 16;
  scenario.runtime.cache.policy = "none";
  return scenario;
}

}  // namespace terrace::testing
