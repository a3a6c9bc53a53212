// Clustering that was planned to take far too long: decoding waits for the iteration under way, but
// not for a later one.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

#include "doubles/seeded_scheduler.hpp"
#include "kernels/seed.hpp"
#include "runtime/own_policy.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

constexpr Duration iteration = std::chrono::seconds{1};
constexpr std::size_t before_step = 3;  // iterations of the first layer

/// Selects nothing.
class SelectsNothing : public testing::OwnPolicy {
 public:
  using OwnPolicy::OwnPolicy;

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& /*ops*/) const override {
    return queue.call(Phase::select, [request = batch.front()]() -> Result<std::size_t> {
      std::fill_n(request.out.id_count, request.shape.kv_heads, 0U);
      return 0;
    });
  }
};

/// An index whose building does nothing but iterate, each time for a second of a manual clock. In
/// the first layer's iteration `before_step` decoding begins.
class Iterating final : public SelectsNothing {
 public:
  explicit Iterating(ManualClock& clock) : SelectsNothing({.name = "iterating"}), clock_(clock) {}

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t /*part*/) const override {
    BuildReport report;
    const auto ended = [&] {
      return report.iterations >= request.iterations || request.cancelled->load();
    };
    while (!ended()) {
      if (request.layer == LayerId{0} && report.iterations == before_step) decode_now();
      // The iteration lasts until decoding waits for it. Bounded: a guard that never comes is a
      // failure, not a hang.
      for (int i = 0; decode.load() && i < 10'000'000 && !ended(); ++i) std::this_thread::yield();
      clock_.advance(iteration);
      ++report.iterations;
    }
    return report;
  }

  mutable std::atomic<bool> decode{false};

 private:
  void decode_now() const {
    decode.store(true);
    decode.notify_all();
  }

  ManualClock& clock_;
};

TEST(LateClustering, DelaysDecodingByOneIterationAtMost) {
  ManualClock clock;
  const auto policy = std::make_shared<Iterating>(clock);
  Scenario scenario;
  scenario.runtime.shape.layers = 5;
  scenario.runtime.own_policy = policy;
  scenario.runtime.planning = {.iterations = {},
                               .limits = {.iterations_min = 1000, .iterations_max = 1000}};
  scenario.backend.clock = &clock;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(200).has_value());
  policy->decode.wait(false);
  const TimePoint before = clock.now();
  ASSERT_TRUE(drive.step().has_value());
  EXPECT_EQ(clock.now() - before, iteration);
  const ClusteringReport report = drive.sequence().clustering().value();
  EXPECT_EQ(report.iterations, (std::vector<std::size_t>{before_step + 1, 0, 0, 0, 0}));
  EXPECT_EQ(report.waited, iteration);
  EXPECT_EQ(report.late_layers, 4U) << "the last one ends as the wait for it begins";
}

/// Two parts that iterate as often as was planned, each time for half of what a test says of a
/// manual clock; the second may be cut short before it begins.
class Planned final : public SelectsNothing {
 public:
  explicit Planned(ManualClock& clock)
      : SelectsNothing({.name = "planned", .training_tokens = 1000}), clock_(clock) {}

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t part) const override {
    const std::size_t count = part == 1 && cut.load() ? 0 : request.iterations;
    clock_.advance(iteration.load() / 2 * static_cast<Duration::rep>(count));
    return BuildReport{.iterations = count};
  }
  [[nodiscard]] std::size_t build_parts(const BuildRequest& /*request*/) const noexcept override {
    return 2;
  }

  std::atomic<Duration> iteration{std::chrono::milliseconds{500}};
  std::atomic<bool> cut{false};

 private:
  ManualClock& clock_;
};

/// Nine of ten seconds are available for iterations that are expected to take half a second each.
class LatePlans : public ::testing::Test {
 protected:
  explicit LatePlans(std::size_t layers = 1, double seconds_a_token = 0) {
    Scenario scenario;
    scenario.runtime.shape.layers = layers;
    scenario.runtime.own_policy = policy_;
    scenario.runtime.planning = {
        .iterations = {},
        .limits = {.iterations_min = 1, .iterations_max = 100, .margin = 0.1},
        .costs = {.compute = {{10, seconds_a_token, 0}}, .kmeans_iteration = {{0.5, 0, 0}}}};
    scenario.backend.clock = &clock_;
    scenario.scheduler = &scheduler_;
    runtime_ = scenario.open();
    traffic_.emplace(scenario.runtime.shape, 1);
  }

  std::size_t iterations_of_a_prompt(Duration pause = {}) {
    Drive drive(*runtime_, *traffic_);
    EXPECT_TRUE(drive.prefill(200).has_value());
    while (scheduler_.step()) {
    }
    clock_.advance(pause);
    EXPECT_TRUE(drive.step().has_value());
    return drive.sequence().clustering().value().iterations.front();
  }

  ManualClock clock_;
  doubles::SeededScheduler scheduler_{testing::seed()};
  std::shared_ptr<Planned> policy_ = std::make_shared<Planned>(clock_);
  std::unique_ptr<Runtime> runtime_;
  std::optional<Traffic> traffic_;
};

TEST_F(LatePlans, FollowWhatIterationsTake) {
  EXPECT_EQ(iterations_of_a_prompt(), 18U);
  policy_->iteration = std::chrono::seconds{1};
  EXPECT_EQ(iterations_of_a_prompt(), 18U) << "nobody knew";
  EXPECT_EQ(iterations_of_a_prompt(), 9U);
  EXPECT_EQ(iterations_of_a_prompt(), 9U);
  policy_->iteration = std::chrono::milliseconds{500};
  std::size_t before = iterations_of_a_prompt();
  for (int prompt = 0; prompt < 40; ++prompt) {
    const std::size_t now = iterations_of_a_prompt();
    EXPECT_GE(now, before) << "it climbs back, and does not swing";
    before = now;
  }
  EXPECT_GE(before, 17U);
}

/// Plans of three layers; iterations take no time.
class PlansOfLayers : public LatePlans {
 protected:
  PlansOfLayers() : LatePlans(3, 0.1) { policy_->iteration = Duration{}; }
};

TEST_F(PlansOfLayers, AreNotMisledByAPauseBeforeTheFirstStep) {
  for (int prompt = 0; prompt < 5; ++prompt) {
    EXPECT_EQ(iterations_of_a_prompt(std::chrono::seconds{300}), 54U) << "30 s for 200 tokens";
  }
}

TEST_F(PlansOfLayers, HideAnIndexOfAllBehindTheComputeOfThePromptsRest) {
  Drive drive(*runtime_, *traffic_);
  ASSERT_TRUE(drive.prefill(100).has_value());
  EXPECT_EQ(drive.sequence().clustering().value().iterations, (std::vector<std::size_t>(3, 36)));
  ASSERT_TRUE(drive.prefill(250).has_value());
  ASSERT_TRUE(drive.step().has_value());
  EXPECT_EQ(drive.sequence().clustering().value().iterations, (std::vector<std::size_t>(3, 45)))
      << "25 s for 150 tokens";
}

TEST_F(LatePlans, AreNotHurriedInTheMiddleOfAPrompt) {
  Drive drive(*runtime_, *traffic_);
  const auto step = drive.begin_prompt(10);
  EXPECT_EQ(drive.sequence().clustering().error().code, Errc::invalid_argument);
}

TEST_F(LatePlans, AreNotMisledByPartsThatWereCutShort) {
  EXPECT_EQ(iterations_of_a_prompt(), 18U);
  policy_->iteration = std::chrono::seconds{1};
  policy_->cut = true;
  EXPECT_EQ(iterations_of_a_prompt(), 18U) << "by the first part, in the time of 18";
  policy_->cut = false;
  EXPECT_EQ(iterations_of_a_prompt(), 9U);
}

}  // namespace
}  // namespace terrace
