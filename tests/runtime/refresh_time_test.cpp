// Refreshes keep to their time: by a clock that moves on with each piece of work, building an index
// anew and catching up with what came meanwhile never take longer beside a step than they may.
#include <gtest/gtest.h>

#include "policies/selecting_policies.hpp"
#include "runtime/own_policy.hpp"
#include "runtime/scenario.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace {
namespace {

using std::chrono::milliseconds;
using testing::Drive;
using testing::Scenario;
using testing::Traffic;

/// How long each piece takes, one after the other.
class PieceTimes {
 public:
  PieceTimes(ManualClock& clock, std::vector<Duration> times)
      : clock_(clock), times_(std::move(times)) {}

  void pass() noexcept { clock_.advance(times_[pieces_++ % times_.size()]); }

 private:
  ManualClock& clock_;
  std::vector<Duration> times_;
  std::size_t pieces_ = 0;
};

/// A policy whose pieces of work take time by a clock that stands still otherwise.
class TimedPolicy final : public RetrievalPolicy {
 public:
  TimedPolicy(const std::string& name, PieceTimes& times)
      : policy_(policies::make_retrieval_policy(name).value()), times_(times) {}

  /// Pieces of extensions in the background.
  [[nodiscard]] std::size_t caught_up() const noexcept { return caught_up_; }

  [[nodiscard]] const RetrievalTraits& traits() const noexcept override {
    return policy_->traits();
  }
  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    return policy_->index_layout(shape);
  }
  [[nodiscard]] const std::uint32_t* labels(const KvShape& shape, std::byte* chunk,
                                            std::size_t head) const noexcept override {
    return policy_->labels(shape, chunk, head);
  }
  [[nodiscard]] std::size_t pseudo_capacity(std::size_t tokens) const noexcept override {
    return policy_->pseudo_capacity(tokens);
  }
  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept override {
    return policy_->select_scratch_floats(shape, candidates);
  }
  [[nodiscard]] std::size_t build_parts(const BuildRequest& request) const noexcept override {
    return policy_->build_parts(request);
  }
  [[nodiscard]] std::unique_ptr<IndexPart> begin_part(const BuildRequest& request,
                                                      std::size_t part) const override {
    const bool catches_up = request.anew && request.extends();
    return std::make_unique<TimedPart>(*this, policy_->begin_part(request, part), catches_up);
  }
  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return policy_->select(batch, queue, ops);
  }

 private:
  class TimedPart final : public IndexPart {
   public:
    TimedPart(const TimedPolicy& policy, std::unique_ptr<IndexPart> part, bool catches_up)
        : policy_(policy), part_(std::move(part)), catches_up_(catches_up) {}

    [[nodiscard]] Result<bool> do_piece() override {
      policy_.times_.pass();
      if (catches_up_) ++policy_.caught_up_;
      return part_->do_piece();
    }
    [[nodiscard]] BuildReport report() const noexcept override { return part_->report(); }

   private:
    const TimedPolicy& policy_;
    std::unique_ptr<IndexPart> part_;
    bool catches_up_;
  };

  [[nodiscard]] Result<bool> do_cut(const BuildRequest& request) const override {
    return policy_->cut(request);
  }

  std::unique_ptr<RetrievalPolicy> policy_;
  PieceTimes& times_;
  mutable std::size_t caught_up_ = 0;  // on the scheduler's one thread
};

/// A sequence whose refreshes take so long a piece. Indexes have so many pieces that more than a
/// block of tokens comes meanwhile: where nothing is clustered, because there are many heads.
class TimedDrive {
 public:
  TimedDrive(const std::string& policy, const std::vector<Duration>& times, RefreshOptions refresh)
      : times_(clock_, times),
        policy_(std::make_shared<TimedPolicy>(policy, times_)),
        scenario_(timed(refresh)),
        runtime_(scenario_.open()),
        traffic_(scenario_.runtime.shape, 1),
        drive_(*runtime_, traffic_) {
    EXPECT_TRUE(drive_.prefill(120).has_value());
  }

  /// Goes on until pieces of an extension have been done, for 400 steps at the most.
  void step_into_an_extension() {
    const std::size_t before = policy_->caught_up();
    for (int i = 0; i < 400 && policy_->caught_up() == before; ++i) {
      ASSERT_TRUE(drive_.step().has_value());
    }
  }

  Drive& fork() {
    twin_ = std::make_unique<Drive>(drive_.sequence().fork().value(), *runtime_, traffic_);
    return *twin_;
  }

  [[nodiscard]] Drive& drive() noexcept { return drive_; }
  [[nodiscard]] std::size_t caught_up() const noexcept { return policy_->caught_up(); }

 private:
  [[nodiscard]] Scenario timed(RefreshOptions refresh) {
    Scenario scenario;
    scenario.backend.clock = &clock_;
    scenario.backend.scheduler = &scheduler_;
    if (!policy_->traits().clusters) {
      scenario.runtime.shape.query_heads = scenario.runtime.shape.kv_heads = 48;
    }
    scenario.runtime.own_policy = policy_;
    scenario.runtime.refresh = refresh;
    return scenario;
  }

  ManualClock clock_;
  PieceTimes times_;
  std::shared_ptr<TimedPolicy> policy_;
  offload::SeededScheduler scheduler_{3};
  Scenario scenario_;
  std::unique_ptr<Runtime> runtime_;
  Traffic traffic_;
  Drive drive_;
  std::unique_ptr<Drive> twin_;
};

struct Outcome {
  Duration longest{};  ///< slice
  std::uint64_t refreshes = 0;
  std::size_t caught_up = 0;
};

/// Decodes with refreshes whose pieces take `times`.
Outcome decode(const std::string& policy, const std::vector<Duration>& times, Duration slice) {
  TimedDrive timed(policy, times, {.tokens = 40, .slice = slice});
  EXPECT_TRUE(timed.drive().steps(400).has_value());
  const SequenceCounters counters = timed.drive().sequence().counters();
  return {counters.longest_refresh_slice, counters.refreshes, timed.caught_up()};
}

class EachRefresh : public ::testing::TestWithParam<std::string> {};

TEST_P(EachRefresh, TakesNoMoreThanItsSliceWherePiecesAreAlike) {
  const Outcome outcome = decode(GetParam(), {milliseconds{2}}, milliseconds{5});
  EXPECT_GT(outcome.refreshes, 0U);
  // The oracle's whole index is one piece.
  EXPECT_EQ(outcome.caught_up > 0, GetParam() != "oracle");
  EXPECT_EQ(outcome.longest, GetParam() == "oracle" ? milliseconds{2} : milliseconds{4});
}

TEST_P(EachRefresh, TakesOnePieceLongerAtMostWhereTheyAreNot) {
  const Outcome outcome =
      decode(GetParam(), {milliseconds{1}, milliseconds{1}, milliseconds{1}, milliseconds{7}},
             milliseconds{9});
  EXPECT_GT(outcome.refreshes, 0U);
  EXPECT_LE(outcome.longest, milliseconds{9 + 7});
}

TEST_P(EachRefresh, DoesAPieceWhereItsTimeIsOverAtOnce) {
  const Outcome outcome = decode(GetParam(), {milliseconds{2}}, Duration::zero());
  EXPECT_GT(outcome.refreshes, 0U);
  EXPECT_EQ(outcome.longest, milliseconds{2});
}

/// What comes of an extension that is being laid down when its sequence is cut, paused or forked.
class EachInterruption : public EachRefresh {
 protected:
  /// Steps into an extension, does `interrupt` and goes on; `interrupt` gives who goes on.
  template <typename Interrupt>
  void expect_nothing_lost(Interrupt interrupt) {
    TimedDrive timed(GetParam(), {milliseconds{2}}, {.tokens = 40, .slice = milliseconds{2}});
    timed.step_into_an_extension();
    const std::size_t steps = timed.drive().outputs().size();
    Drive& refreshed = interrupt(timed);
    const std::uint64_t before = refreshed.sequence().counters().refreshes;
    ASSERT_TRUE(refreshed.steps(200).has_value());
    refreshed.expect_all_rows_right();
    EXPECT_GT(refreshed.sequence().counters().refreshes, before);

    // Of indexes that forget nothing a refresh changes no bit.
    if (GetParam() != "oracle" && GetParam() != "quest") return;
    TimedDrive plain(GetParam(), {milliseconds{2}}, {});
    ASSERT_TRUE(plain.drive().steps(steps).has_value());
    Drive& expected = interrupt(plain);
    ASSERT_TRUE(expected.steps(200).has_value());
    EXPECT_EQ(refreshed.outputs(), expected.outputs());
  }
};

TEST_P(EachInterruption, ByACutLosesNothing) {
  expect_nothing_lost([](TimedDrive& timed) -> Drive& {
    // Into what the extension lays down, or shortly before.
    const std::size_t length = timed.drive().sequence().length();
    EXPECT_TRUE(timed.drive().sequence().truncate(length - 30).has_value());
    return timed.drive();
  });
}

TEST_P(EachInterruption, ByAPauseLosesNothing) {
  expect_nothing_lost([](TimedDrive& timed) -> Drive& {
    EXPECT_TRUE(timed.drive().sequence().pause().has_value());
    EXPECT_TRUE(timed.drive().sequence().resume().has_value());
    return timed.drive();
  });
}

TEST_P(EachInterruption, ByAForkLosesNothingOfEither) {
  for (const bool twin_goes_on : {false, true}) {
    expect_nothing_lost([&](TimedDrive& timed) -> Drive& {
      Drive& twin = timed.fork();
      return twin_goes_on ? twin : timed.drive();
    });
  }
}

/// An index of parts that begin with short pieces and end with a long one.
class UnlikePieces final : public testing::OwnPolicy {
 public:
  explicit UnlikePieces(ManualClock& clock) : OwnPolicy({.name = "unlike"}), clock_(clock) {}

  [[nodiscard]] std::size_t build_parts(const BuildRequest& /*request*/) const noexcept override {
    return 6;
  }
  [[nodiscard]] std::unique_ptr<IndexPart> begin_part(const BuildRequest& /*request*/,
                                                      std::size_t /*part*/) const override {
    return std::make_unique<Part>(clock_);
  }
  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> /*batch*/, Queue& queue,
                                      const Ops& /*ops*/) const override {
    return queue.record();
  }

 private:
  class Part final : public IndexPart {
   public:
    explicit Part(ManualClock& clock) : clock_(clock) {}

    [[nodiscard]] Result<bool> do_piece() override {
      const bool last = ++pieces_ == 4;
      clock_.advance(milliseconds{last ? 7 : 1});
      return last;
    }

   private:
    ManualClock& clock_;
    std::size_t pieces_ = 0;
  };

  ManualClock& clock_;
};

TEST(RefreshSlice, IsOutlastedByTheFirstLongPieceAlone) {
  ManualClock clock;
  const UnlikePieces policy(clock);
  const BuildRequest request{.clock = &clock};
  IndexProgress progress;
  // Behind the first one an index of another layer, then what came while it was built.
  for (std::size_t index = 0; index < 3; ++index) {
    progress.restart();
    for (bool whole = false, first = index == 0; !whole; first = false) {
      const TimePoint begin = clock.now();
      whole = policy.build_some(request, progress, begin + milliseconds{9}).value();
      EXPECT_LE(clock.now() - begin, milliseconds{first ? 10 : 9});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EachRefresh, ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });
INSTANTIATE_TEST_SUITE_P(Table, EachInterruption,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace terrace
