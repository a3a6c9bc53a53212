// Whatever device memory is too small for fails by itself: what goes on has the bits that it has
// with room.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/seed.hpp"
#include "policies/selecting_policies.hpp"
#include "runtime/lives.hpp"

namespace terrace {
namespace {

using ::testing::AllOf;
using testing::Batch;
using testing::BatchMember;
using testing::Drive;
using testing::Event;
using ::testing::HasSubstr;
using testing::Scenario;
using testing::Traffic;

bool lacks_memory(const Status& done) { return !done && done.error().code == Errc::out_of_memory; }

/// A sequence in little memory, and one in enough to which the same happens.
struct Twins {
  std::unique_ptr<Drive> tight;
  std::unique_ptr<Drive> roomy;
  bool paused = false;
};

/// Lets random things happen to sequences, three at a time at the most.
class Lives {
 public:
  Lives(const Scenario& scenario, std::size_t device_memory, Rng& rng)
      : traffic_(scenario.runtime.shape, 1), rng_(rng), roomy_(scenario.open()) {
    Scenario tight = scenario;
    tight.backend.device_memory_limit = device_memory;
    tight_ = tight.open();
  }

  void live(std::size_t events) {
    twins_.push_back({.tight = std::make_unique<Drive>(*tight_, traffic_),
                      .roomy = std::make_unique<Drive>(*roomy_, traffic_)});
    prompt(twins_.front(), prompt_max);
    for (std::size_t i = 0; i < events; ++i) {
      happen(rng_.below(twins_.size()));
      if (::testing::Test::HasFailure()) return;
    }
    for (const Twins& one : twins_) expect_alike(one);
  }

  [[nodiscard]] std::size_t failures() const noexcept { return failures_; }
  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }
  /// Returns the events so far, as a failure shows them.
  [[nodiscard]] const std::string& story() const noexcept { return story_; }

 private:
  static constexpr std::size_t prompt_max = 300;
  static constexpr std::size_t length_max = 500;
  static constexpr std::size_t length_min = 60;

  void happen(std::size_t number) {
    Twins& one = twins_[number];
    const std::uint64_t event = rng_.below(12);
    story_ += fmt::format("{}: ", number);
    if (one.paused) {
      if (event >= 8) resume(one);
    } else if (event < 6) {
      for (std::uint64_t left = 1 + rng_.below(12); left > 0; --left) step(one);
    } else if (event == 6) {
      fork(one);
    } else if (event == 7) {
      pause(one);
    } else if (event == 8) {
      truncate(one);
    } else if (event <= 10) {
      prompt(one, one.roomy->sequence().length() + 1 + rng_.below(100));
    } else if (twins_.size() > 1) {
      expect_alike(one);
      twins_.erase(twins_.begin() + static_cast<std::ptrdiff_t>(number));
    }
  }

  /// Whether it went well. Nothing but memory may be missing.
  bool went_well(const char* what, const Status& done) {
    story_ += fmt::format("{}{} ", done ? "" : "no ", what);
    EXPECT_TRUE(done || lacks_memory(done)) << done.error().message();
    if (!done) ++failures_;
    return done.has_value();
  }

  static void expect_done(const Status& done) {
    EXPECT_TRUE(done.has_value()) << done.error().message();
  }

  void step(Twins& one) {
    if (one.roomy->sequence().length() == 0 || !went_well("step", one.tight->step())) return;
    expect_done(one.roomy->step());
    ++steps_;
  }

  void prompt(Twins& one, std::size_t length) {
    if (length > length_max || !went_well("prompt", one.tight->prefill(length))) return;
    expect_done(one.roomy->prefill(length));
  }

  void pause(Twins& one) {
    one.paused = went_well("pause", one.tight->sequence().pause());
    if (one.paused) expect_done(one.roomy->sequence().pause());
  }

  void resume(Twins& one) {
    one.paused = !went_well("resume", one.tight->sequence().resume());
    if (!one.paused) expect_done(one.roomy->sequence().resume());
  }

  void truncate(Twins& one) {
    const std::size_t length = one.roomy->sequence().length();
    if (length <= length_min) return;
    const std::size_t cut = std::min(length - length_min, rng_.below(120));
    // If the new window finds no room, the sequence is cut nevertheless, and paused.
    const bool done = went_well("cut", one.tight->sequence().truncate(length - cut));
    one.paused = one.tight->sequence().phase() == SequencePhase::paused;
    if (done || one.paused) expect_done(one.roomy->sequence().truncate(length - cut));
    if (one.paused) expect_done(one.roomy->sequence().pause());
  }

  void fork(Twins& one) {
    if (twins_.size() == 3) return;
    auto tight = one.tight->sequence().fork();
    if (!went_well("fork", tight ? Status{} : tl::unexpected(tight.error()))) return;
    auto roomy = one.roomy->sequence().fork();
    ASSERT_TRUE(roomy.has_value());
    twins_.push_back({.tight = std::make_unique<Drive>(std::move(*tight), *tight_, traffic_),
                      .roomy = std::make_unique<Drive>(std::move(*roomy), *roomy_, traffic_)});
  }

  static void expect_alike(const Twins& one) {
    EXPECT_EQ(one.tight->outputs(), one.roomy->outputs());
    if (!one.paused) one.tight->expect_all_rows_right();
  }

  Traffic traffic_;
  Rng& rng_;
  std::unique_ptr<Runtime> roomy_;
  std::unique_ptr<Runtime> tight_;
  std::vector<Twins> twins_;
  std::size_t failures_ = 0;
  std::size_t steps_ = 0;
  std::string story_;
};

Scenario random_scenario(Rng& rng) {
  constexpr std::array retrieval{"oracle", "clusterkv", "wave", "pqcache"};
  Scenario scenario;
  RuntimeOptions& options = scenario.runtime;
  options.policy = retrieval[rng.below(retrieval.size())];
  options.budget.value = 60;
  options.retrieval.clusterkv.tokens_per_cluster = 20;
  options.planning.iterations = {2};
  const bool clusters = std::ranges::count(testing::clustering_policies(), options.policy) != 0;
  options.cache = {.policy = rng.below(2) != 0 ? "lru" : "s3fifo",
                   .admission = rng.below(2) != 0 ? "always" : "refill",
                   .granularity = clusters && rng.below(2) != 0 ? CacheGranularity::cluster
                                                                : CacheGranularity::block,
                   .tokens = 24 + 8 * rng.below(40)};
  if (options.cache.policy == "lru" && rng.below(3) == 0) {
    options.cache.granularity = CacheGranularity::row;
  }
  if (rng.below(3) == 0) options.placement = Placement::resident_first;
  return scenario;
}

TEST(TightMemory, ChangesNoBitOfRandomLives) {
  std::size_t failures = 0;
  std::size_t steps = 0;
  const std::size_t rounds = testing::random_rounds(30);
  for (std::size_t round = 0; round < rounds && !HasFailure(); ++round) {
    Rng rng(testing::seed(), {round});
    const Scenario scenario = random_scenario(rng);
    Lives lives(scenario, 120'000 + rng.below(150'000), rng);
    lives.live(40);
    failures += lives.failures();
    steps += lives.steps();
    if (HasFailure()) {
      ADD_FAILURE() << testing::seed_text() << ", round " << round << ", "
                    << scenario.runtime.policy << ": " << lives.story();
    }
  }
  if (rounds >= 10) {
    EXPECT_GT(failures, 0U);
  }
  EXPECT_GT(steps, rounds);
}

struct Refusal {
  std::string policy;
  std::size_t dense_layers = 0;
  IndexResidency residency = IndexResidency::automatic;
};

TEST(TightMemory, ARefusedPromptLeavesStepsTheirBuffers) {
  for (const auto& [policy, dense, residency] :
       {Refusal{"pqcache"}, Refusal{"quest"}, Refusal{"pqcache", 1},
        Refusal{"quest", 0, IndexResidency::device}}) {
    Scenario scenario;
    scenario.runtime.policy = policy;
    scenario.runtime.dense_layers = dense;
    scenario.runtime.index_residency = residency;
    scenario.backend.device_memory_limit = 1'500'000;
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(150).has_value());
    ASSERT_TRUE(drive.steps(3).has_value());
    EXPECT_TRUE(lacks_memory(drive.prefill(200'000)));
    drive.sequence().reset_counters();
    const Status done = drive.steps(3);
    EXPECT_TRUE(done.has_value()) << done.error().message();
    EXPECT_LT(drive.sequence().counters().bytes.index,
              runtime->memory_need({.tokens = 150})->index_bytes)
        << policy << ": an index that was resident is streamed";
  }
}

TEST(TightMemory, ARefusedFirstPromptDecidesOnNothing) {
  Scenario scenario;
  scenario.runtime.budget = {.kind = TokenBudget::Kind::share, .value = 0.2};
  scenario.backend.device_memory_limit = 2'000'000;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(lacks_memory(drive.prefill(100'000)));
  ASSERT_TRUE(drive.prefill(300).has_value());
  ASSERT_TRUE(drive.steps(3).has_value());
  EXPECT_EQ(drive.sequence().budget_tokens(), 60U);
}

TEST(TightMemory, ARefusedPromptKeepsNoIndexMemory) {
  for (const char* const policy : {"quest", "clusterkv"}) {
    Scenario scenario;
    scenario.runtime.policy = policy;
    scenario.runtime.index_residency = IndexResidency::device;
    scenario.backend.device_memory_limit = 1'500'000;
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive refused(*runtime, traffic);
    Drive other(*runtime, traffic);
    ASSERT_TRUE(refused.prefill(150).has_value());
    ASSERT_TRUE(refused.steps(3).has_value());
    EXPECT_TRUE(lacks_memory(refused.prefill(250'000)));
    const Status fits = other.prefill(3000);
    ASSERT_TRUE(fits.has_value()) << policy << ": " << fits.error().message();
    ASSERT_TRUE(other.steps(3).has_value());
    ASSERT_TRUE(refused.steps(30).has_value());
  }
}

TEST(TightMemory, ARefusedPromptTakesNoPagesFromOthers) {
  Scenario scenario;
  scenario.backend.host_memory_limit = 64U << 20U;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive refused(*runtime, traffic);
  Drive other(*runtime, traffic);
  ASSERT_TRUE(other.prefill(300).has_value());
  EXPECT_TRUE(lacks_memory(refused.prefill(3'000'000)));
  ASSERT_TRUE(refused.prefill(300).has_value());
  ASSERT_TRUE(other.steps(100).has_value());
}

/// A member is refused if its queries, converted to f32, find no room.
void expect_others_go_on(std::size_t tokens) {
  constexpr Dtype queries = Dtype::f16;
  Scenario scenario;
  scenario.runtime.policy = "streaming";
  Scenario tight = scenario;
  tight.backend.device_memory_limit = 1'200'000;
  const auto runtime = tight.open();
  Batch batch(*runtime, 2);
  batch.round_queries(queries, /*in_f32=*/false);
  ASSERT_TRUE(batch.sequence(0).begin_prompt(130).has_value());
  ASSERT_TRUE(batch.sequence(1).begin_prompt(tokens).has_value());
  const Status refused = batch.step(std::array{BatchMember{1, tokens}}).front();
  ASSERT_TRUE(lacks_memory(refused));
  EXPECT_THAT(std::string(refused.error().message()),
              AllOf(HasSubstr(fmt::format("no room for {} tokens in one step", tokens)),
                    HasSubstr("device.memory is 1.144 MiB"), HasSubstr("raise it")));
  for (const std::size_t piece : {90U, 40U}) {
    const auto statuses = batch.step(std::array{BatchMember{0, piece}, BatchMember{1, tokens}});
    EXPECT_TRUE(statuses[0].has_value()) << statuses[0].error().message();
    EXPECT_TRUE(lacks_memory(statuses[1]));
  }
  batch.expect_step(std::array<std::size_t, 1>{0});
  const std::vector<Event> events{{Event::Kind::prompt, 130}, {Event::Kind::decode, 1}};
  EXPECT_EQ(batch.outputs(0),
            testing::alone(scenario,
                           {.traffic = batch.traffic(0), .events = events, .queries = queries}));
}

TEST(TightMemory, ARefusedMemberLeavesOthersTheMemoryOfTheStep) {
  for (const std::size_t tokens : {6'000U, 9'000U}) expect_others_go_on(tokens);
}

TEST(TightMemory, APieceAttendsWithAsManyQueriesAtATimeAsThereIsRoomFor) {
  Scenario scenario;
  scenario.runtime.policy = "streaming";
  const std::vector<Event> events{{Event::Kind::prompt, 3'000}, {Event::Kind::decode, 2}};
  const auto outputs_in = [&](std::size_t device_memory) {
    Scenario tight = scenario;
    tight.backend.device_memory_limit = device_memory;
    const Traffic traffic(scenario.runtime.shape, 1);
    return testing::alone(tight, {.traffic = traffic, .events = events});
  };
  EXPECT_EQ(outputs_in(700'000), outputs_in(100'000'000));
}

TEST(TightMemory, ARefusedFirstStepDecidesOnNoBudget) {
  Scenario scenario;
  scenario.runtime.budget = {.kind = TokenBudget::Kind::share, .value = 0.2};
  scenario.backend.device_memory_limit = 200'000;
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  ASSERT_FALSE(batch.step(std::array{BatchMember{0, 9'000}}).front().has_value());
  EXPECT_EQ(batch.sequence(0).budget_tokens(), 0U);
  batch.expect_step(std::array{BatchMember{0, 100}});
  EXPECT_EQ(batch.sequence(0).budget_tokens(), 20U);
}

}  // namespace
}  // namespace terrace
