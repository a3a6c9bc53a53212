#include "runtime/lives.hpp"

#include <array>
#include <ostream>
#include <string>

#include "api/sequence_state.hpp"
#include "terrace/policies/retention.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::testing {
namespace {

/// Has the batch's only sequence live through a part of a life.
void live(Batch& batch, const Stretch& stretch) {
  batch.round_queries(stretch.queries, /*in_f32=*/true);
  batch.go_on_with(0, stretch.traffic);
  Sequence& sequence = batch.sequence(0);
  for (const auto& [kind, tokens, brought] : stretch.events) {
    switch (kind) {
      case Event::Kind::prompt:
        EXPECT_TRUE(sequence.begin_prompt(tokens).has_value());
        batch.expect_step(std::array{BatchMember{0, tokens}});
        break;
      case Event::Kind::decode:
        for (std::size_t i = 0; i < tokens; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
        break;
      case Event::Kind::cut:
        EXPECT_TRUE(sequence.truncate(tokens).has_value());
        break;
      case Event::Kind::pause:
        EXPECT_TRUE(sequence.pause().has_value());
        EXPECT_TRUE(sequence.resume().has_value());
        break;
    }
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const std::vector<Event>& events) {
  constexpr std::array names{"prompt", "decode", "cut to", "pause"};
  for (const auto& [kind, tokens, brought] : events) {
    out << names[static_cast<std::size_t>(kind)] << ' ' << tokens;
    if (brought > 0) out << " of " << brought;
    out << ", ";
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, const Life& life) {
  out << life.events;
  if (life.begun_with == 0) return out;
  out << "after a prefix of " << life.begun_with << ", which was one of:";
  for (const auto& past : life.pasts) {
    out << "\n  ";
    for (const Stretch& stretch : past) out << stretch.events << "then ";
  }
  return out;
}

std::vector<StepOutput> alone(const Scenario& scenario, const Life& life, std::size_t past) {
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  if (!life.has_hints) batch.leave_hints_out();
  if (!life.pasts.empty()) {
    for (const Stretch& stretch : life.pasts[past]) live(batch, stretch);
  }
  const auto before = static_cast<std::ptrdiff_t>(batch.outputs(0).size());
  live(batch, {life.traffic, life.queries, life.events});
  const std::vector<StepOutput>& outputs = batch.outputs(0);
  return {outputs.begin() + before, outputs.end()};
}

Scenario random_scenario(Rng& rng) {
  constexpr std::size_t blocks[] = {3, 8, 32};
  Scenario scenario;
  RuntimeOptions& options = scenario.runtime;
  const auto policies = policies::retrieval_policies();
  do {
    options.policy = policies[rng.below(policies.size())].name;
  } while (policies::make_retrieval_policy(options.policy).value()->traits().keeps_everything);
  options.retrieval.pq = {.subspaces = 2, .bits = 4};
  options.block_tokens = blocks[rng.below(3)];
  options.window_share = 0.1 + 0.8 * rng.uniform();
  options.cache.tokens = 1 + rng.below(128);
  const auto policy = policies::make_retrieval_policy(options.policy, options.retrieval).value();
  if (policy->index_layout(options.shape)->chunk_clusters > 0 && rng.below(2) == 0) {
    options.cache.granularity = CacheGranularity::cluster;
  } else if (rng.below(3) == 0) {
    options.cache.granularity = CacheGranularity::row;
  }
  options.placement = rng.below(2) == 0 ? Placement::offload : Placement::resident_first;
  options.index_residency = rng.below(2) == 0 ? IndexResidency::device : IndexResidency::host;
  options.prompts = rng.below(2) == 0 ? PromptAttention::exact : PromptAttention::retrieved;
  options.planning.iterations = {2};
  return scenario;
}

Scenario random_retention(Rng& rng) {
  Scenario scenario = random_scenario(rng);
  RuntimeOptions& options = scenario.runtime;
  options.policy = "streaming";
  constexpr std::array policies{"recent",  "snapkv", "pyramidkv", "chelsea",
                                "kvcrush", "h2o",    "cam"};
  options.retention_policy = policies[rng.below(policies.size())];
  options.retention.base = rng.below(2) == 0 ? "h2o" : "snapkv";
  options.retention.score_window = 8;
  options.retention.rerun = rng.below(2) == 0 ? policies::Rerun::flush : policies::Rerun::once;
  options.retention.merge.share = rng.below(2) == 0 ? 0.5 : 0;
  options.cache = {};
  return scenario;
}

Scenario random_holding(Rng& rng) {
  Scenario scenario = random_scenario(rng);
  RuntimeOptions& options = scenario.runtime;
  constexpr std::array retrieval{"pqcache", "qpq", "oracle"};
  constexpr std::array retention{"recent", "snapkv", "pyramidkv"};
  options.policy = retrieval[rng.below(retrieval.size())];
  options.cache.granularity = CacheGranularity::block;
  options.retention_policy = retention[rng.below(retention.size())];
  options.retention.score_window = 8;
  options.retention.rerun = rng.below(2) == 0 ? policies::Rerun::flush : policies::Rerun::once;
  options.dropped = DroppedTokens::keep;
  options.held_share = 0.1 + 0.8 * rng.uniform();
  return scenario;
}

std::size_t tokens_to_flush(Sequence& sequence) {
  const SequenceProgress& progress = state_of(sequence).parts.progress;
  const policies::BudgetSplit& split = progress.split();
  const std::size_t decided = std::max(progress.retained_end(), split.sinks + split.kept);
  const std::size_t due = std::max(decided + (progress.is_behind_prompt() ? 1 : 2) * split.window,
                                   progress.flushes_from());
  return due > progress.length() ? due - progress.length() : 1;
}

Result<std::size_t> shortest_cut(Sequence& sequence, const Scenario& scenario) {
  if (!drops(scenario)) return 0;
  TERRACE_TRY(sequence.await_indexes());
  const std::size_t window = sequence.window().begin;
  return window > sequence.sinks().end ? window : 0;
}

}  // namespace terrace::testing
