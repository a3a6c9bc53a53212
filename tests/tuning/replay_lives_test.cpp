// Whatever becomes of a run's sequences, and in whatever order, its trace gives its counters.
#include <fmt/core.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "core/temporary_folder.hpp"
#include "kernels/seed.hpp"
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
    runtime_ = scenario.open();
  }

  Drive& open(std::size_t prompt) {
    drives_.push_back(std::make_unique<Drive>(*runtime_, traffic_));
    EXPECT_TRUE(drives_.back()->prefill(prompt).has_value());
    return *drives_.back();
  }

  /// Paused, as forks are: the first step resumes it.
  Drive& fork(Drive& from) {
    auto twin = from.sequence().fork();
    EXPECT_TRUE(twin.has_value());
    drives_.push_back(std::make_unique<Drive>(std::move(*twin), *runtime_, traffic_));
    return *drives_.back();
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
  std::unique_ptr<Runtime> runtime_;
  std::vector<std::unique_ptr<Drive>> drives_;
  SequenceCounters counters_;
};

void expect_followed(const Scenario& scenario, void (*live)(Lives&)) {
  const TemporaryFolder folder;
  Lives lives(scenario, folder / "t");
  live(lives);
  const SequenceCounters counted = lives.finish();
  expect_same_cache(replay_of(folder / "t", {.cache = scenario.runtime.cache, .as_recorded = true}),
                    counted);
  EXPECT_GT(counted.cache.adopted, 0U);
}

TEST(ReplayOfLives, DropsWhatAPauseDroppedInItsOrder) {
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

}  // namespace
}  // namespace terrace::tuning
