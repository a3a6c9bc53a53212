// A trace gives the counters of its run, or says that it does not, however the run's sequences
// begin, go on and end.
#include <fmt/core.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "core/temporary_folder.hpp"
#include "doubles/fault_backend.hpp"
#include "kernels/seed.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/tuning/recorder.hpp"
#include "tuning/recorded_scenario.hpp"

namespace terrace::tuning {
namespace {

/// Sequences that are recorded, and what all of them have counted.
class Lives {
 public:
  Lives(Scenario scenario, const std::filesystem::path& file)
      : recorder_(TraceWriter::create(file, head_of(scenario)).value()),
        traffic_(scenario.runtime.shape, 1) {
    scenario.runtime.observer = &recorder_;
    auto backend = doubles::FaultBackend::wrap(testing::make_scenario_backend(scenario.backend));
    faults_ = backend.get();
    runtime_ = scenario.open(std::move(backend));
  }

  [[nodiscard]] doubles::FaultBackend& faults() noexcept { return *faults_; }

  Drive& open(std::size_t prompt) {
    const Status opened = try_open(prompt);
    EXPECT_TRUE(opened.has_value());
    return *drives_.back();
  }

  Status try_open(std::size_t prompt) {
    drives_.push_back(std::make_unique<Drive>(*runtime_, traffic_));
    return drives_.back()->prefill(prompt);
  }

  Drive& fork(Drive& from) {
    const Status forked = try_fork(from);
    EXPECT_TRUE(forked.has_value());
    return *drives_.back();
  }

  Status try_fork(Drive& from) {
    TERRACE_ASSIGN(auto twin, from.sequence().fork());
    drives_.push_back(std::make_unique<Drive>(std::move(twin), *runtime_, traffic_));
    return {};
  }

  void close(std::size_t number) {
    add(drives_[number]->sequence().counters(), counters_);
    drives_.erase(drives_.begin() + static_cast<std::ptrdiff_t>(number));
  }

  SequenceCounters finish() {
    while (!drives_.empty()) close(0);
    EXPECT_TRUE(recorder_.finish(std::nullopt).has_value());
    return counters_;
  }

  [[nodiscard]] std::size_t count() const noexcept { return drives_.size(); }
  Drive& drive(std::size_t number) { return *drives_[number]; }

 private:
  TraceRecorder recorder_;
  Traffic traffic_;
  doubles::FaultBackend* faults_ = nullptr;  // the runtime's
  std::unique_ptr<Runtime> runtime_;
  std::vector<std::unique_ptr<Drive>> drives_;
  SequenceCounters counters_;
};

void expect_followed(const Scenario& scenario, void (*live)(Lives&)) {
  const TemporaryFolder folder;
  Lives lives(scenario, folder / "t");
  live(lives);
  const SequenceCounters counted = lives.finish();
  expect_same_cache(replay_of(folder / "t", {.cache = scenario.runtime.cache}), counted);
  EXPECT_GT(counted.cache.adopted, 0U);
}

Status more(Drive& drive, std::size_t tokens) {
  return drive.prefill(drive.sequence().length() + tokens);
}

TEST(ReplayOfLives, DropsWhatAPauseDrops) {
  const CacheOptions cache{.policy = "arc", .admission = "always", .tokens = 216};
  expect_followed(clustered_scenario("clusterkv", cache), [](Lives& lives) {
    Drive& first = lives.open(300);
    ASSERT_TRUE(first.steps(8).has_value());
    ASSERT_TRUE(first.sequence().pause().has_value());
    ASSERT_TRUE(first.sequence().resume().has_value());
    lives.fork(first);
    ASSERT_TRUE(first.steps(8).has_value());
  });
}

TEST(ReplayOfLives, KnowsNothingOfAPauseThatDidNotEnd) {
  expect_followed(recorded_scenario({.admission = "always", .tokens = 96}), [](Lives& lives) {
    Drive& first = lives.open(300);
    ASSERT_TRUE(first.steps(8).has_value());
    ASSERT_TRUE(first.sequence().pause().has_value());
    lives.close(0);
    ASSERT_TRUE(lives.open(300).steps(8).has_value());
  });
}

TEST(ReplayOfLives, KnowsTheBlockOfTheTokenAfterAPrompt) {
  for (const std::size_t tokens : {24U, 48U, 96U}) {
    expect_followed(recorded_scenario({.admission = "always", .tokens = tokens}), [](Lives& lives) {
      Drive& one = lives.open(320);  // whole blocks
      ASSERT_TRUE(more(one, 87).has_value());
      ASSERT_TRUE(one.step().has_value());
    });
  }
}

TEST(ReplayOfLives, KnowsThatPromptsPlaceWhatWaitsForTheIndex) {
  for (const char* const retrieval : {"clusterkv", "wave"}) {
    SCOPED_TRACE(retrieval);
    const Scenario scenario = clustered_scenario(retrieval, {.admission = "always", .tokens = 24});
    expect_followed(scenario, [](Lives& lives) {
      Drive& one = lives.open(300);
      ASSERT_TRUE(more(one, 65).has_value());
      ASSERT_TRUE(one.step().has_value());
    });
    expect_followed(scenario, [](Lives& lives) {
      Drive& twin = lives.fork(lives.open(300));
      ASSERT_TRUE(more(twin, 75).has_value());
      ASSERT_TRUE(twin.step().has_value());
    });
  }
}

/// The difficulties that lives have to cope with.
struct Hardship {
  std::size_t device_memory = SIZE_MAX;
  bool faults = false;  ///< pieces of work fail in steps
  std::size_t events = 40;
};

/// Lets random things happen to sequences, three at a time at the most. Events that hardship
/// prevents do not happen.
class RandomLives {
 public:
  RandomLives(const Scenario& scenario, const std::filesystem::path& file, bool faults, Rng& rng)
      : lives_(scenario, file),
        tight_(scenario.backend.device_memory_limit != SIZE_MAX),
        faults_(faults),
        rng_(rng) {}

  SequenceCounters live(std::size_t events) {
    paused_.push_back(false);
    happened(0, "open", prompt_max, lives_.try_open(prompt_max));
    for (std::size_t i = 0; i < events; ++i) happen(rng_.below(lives_.count()));
    return lives_.finish();
  }

  /// Returns the events so far, as a failure shows them.
  [[nodiscard]] const std::string& story() const noexcept { return story_; }

 private:
  static constexpr std::size_t prompt_max = 300;
  static constexpr std::size_t length_max = 500;
  static constexpr std::size_t length_min = 60;
  static constexpr std::size_t block_tokens = 8;  // of the scenario

  void happen(std::size_t number) {
    const std::uint64_t event = rng_.below(13);
    Sequence& sequence = lives_.drive(number).sequence();
    if (paused_[number]) {
      if (event >= 8) paused_[number] = !happened(number, "resume", 0, sequence.resume());
    } else if (event < 6) {
      step(number);
    } else if (event == 6) {
      fork(number);
    } else if (event == 7) {
      paused_[number] = happened(number, "pause", 0, sequence.pause());
    } else if (event == 8) {
      cut(number);
    } else if (event <= 10) {
      prompt(number);
    } else if (event == 11) {
      faults_ ? abandon(number) : step(number);
    } else {
      close(number);
    }
  }

  void step(std::size_t number) {
    constexpr std::array phases{Phase::select, Phase::fetch,  Phase::attend, Phase::offload,
                                Phase::update, Phase::refill, Phase::cluster};
    const std::size_t steps = 1 + rng_.below(12);
    if (faults_ && rng_.below(2) != 0) {
      lives_.faults().arm(
          {.pieces = {{.phase = phases[rng_.below(phases.size())], .nth = 1 + rng_.below(20)}}});
    }
    happened(number, "step", steps, lives_.drive(number).steps(steps));
    lives_.faults().arm({});
  }

  void cut(std::size_t number) {
    Sequence& sequence = lives_.drive(number).sequence();
    if (sequence.length() <= length_min) return;
    const std::size_t cut = std::min(sequence.length() - length_min, rng_.below(120));
    // If the new window finds no room, the sequence is cut nevertheless, and paused.
    paused_[number] = !happened(number, "cut", cut, sequence.truncate(sequence.length() - cut));
  }

  void prompt(std::size_t number) {
    const std::size_t length = lives_.drive(number).sequence().length();
    if (length > length_max) return;
    std::size_t tokens = 1 + rng_.below(100);
    // To the end of a block, often: there prompts and what they leave meet.
    if (rng_.below(2) != 0)
      tokens = divide_up(length + tokens, block_tokens) * block_tokens - length;
    happened(number, "prompt", tokens, more(lives_.drive(number), tokens));
    // A replay counts blocks that a prompt's steps give up with the first step after it.
    happened(number, "step", 1, lives_.drive(number).step());
  }

  void abandon(std::size_t number) {
    happened(number, "abandon", 0, lives_.drive(number).begin_step()->status(0));
  }

  void fork(std::size_t number) {
    if (lives_.count() == 3) return;
    if (happened(number, "fork", 0, lives_.try_fork(lives_.drive(number)))) {
      paused_.push_back(false);
    }
  }

  void close(std::size_t number) {
    if (lives_.count() == 1) return;
    happened(number, "close", 0, {});
    lives_.close(number);
    paused_.erase(paused_.begin() + static_cast<std::ptrdiff_t>(number));
  }

  bool happened(std::size_t number, const char* what, std::size_t count, const Status& done) {
    story_ += fmt::format("{}: {}{} {}, ", number, done ? "" : "no ", what, count);
    const bool lacks_memory = tight_ && !done && done.error().code == Errc::out_of_memory;
    const bool fault = faults_ && !done && done.error().code == Errc::device_error;
    EXPECT_TRUE(done || lacks_memory || fault) << story_;
    return done.has_value();
  }

  Lives lives_;
  bool tight_;
  bool faults_;
  std::vector<bool> paused_;
  Rng& rng_;
  std::string story_;
};

Scenario random_scenario(Rng& rng) {
  constexpr std::array retrieval{"oracle", "clusterkv", "wave", "pqcache"};
  std::vector<std::string> policies;
  for (const auto& entry : policies::replacement_policies()) {
    if (!entry.needs_foresight) policies.emplace_back(entry.name);
  }
  const std::string chosen = retrieval[rng.below(retrieval.size())];
  const bool clusters = std::ranges::count(testing::clustering_policies(), chosen) != 0;
  Scenario scenario = clustered_scenario(
      chosen, {.policy = policies[rng.below(policies.size())],
               .admission = rng.below(2) != 0 ? "always" : "refill",
               .granularity = clusters && rng.below(2) != 0 ? CacheGranularity::cluster
                                                            : CacheGranularity::block,
               .tokens = 24 + 8 * rng.below(40)});
  if (rng.below(6) == 0) scenario.runtime.placement = Placement::resident_first;
  return scenario;
}

/// Lives through rounds of scenarios. Returns in how many of them something was lost.
std::size_t expect_followed_or_lost(std::size_t rounds, Hardship (*draw)(Rng&)) {
  const TemporaryFolder folder;
  std::size_t lost = 0;
  for (std::size_t round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
    Rng rng(testing::seed(), {round});
    Scenario scenario = random_scenario(rng);
    const Hardship hardship = draw(rng);
    scenario.backend.device_memory_limit = hardship.device_memory;
    const CacheOptions& cache = scenario.runtime.cache;
    RandomLives lives(scenario, folder / "t", hardship.faults, rng);
    const SequenceCounters counted = lives.live(hardship.events);
    if (check_trace(folder / "t").value().losses > 0) {
      ++lost;
      continue;
    }
    SCOPED_TRACE(fmt::format("{}, round {}: {} {} {} {} of {}: {}", testing::seed_text(), round,
                             scenario.runtime.policy, cache.policy, cache.admission,
                             to_string(cache.granularity), cache.tokens, lives.story()));
    expect_same_cache(replay_of(folder / "t", {.cache = cache}), counted);
  }
  return lost;
}

TEST(ReplayOfLives, GivesTheCountersOfRandomOnes) {
  const std::size_t rounds = testing::random_rounds(150);
  EXPECT_EQ(expect_followed_or_lost(rounds, [](Rng&) { return Hardship{}; }), 0U);
}

// Few events, so that in some lives nothing is lost.
Hardship little_memory(Rng& rng) {
  return {.device_memory = 120'000 + rng.below(300'000), .events = 10};
}
Hardship faults(Rng&) { return {.faults = true, .events = 10}; }

TEST(ReplayOfLives, GivesTheCountersOfRandomLivesOrSaysThatSomethingWasLost) {
  for (Hardship (*const draw)(Rng&) : {&little_memory, &faults}) {
    const std::size_t rounds = testing::random_rounds(100);
    const std::size_t lost = expect_followed_or_lost(rounds, draw);
    if (rounds >= 20) {
      EXPECT_GT(lost, 0U);
      EXPECT_LT(lost, rounds);
    }
  }
}

}  // namespace
}  // namespace terrace::tuning
