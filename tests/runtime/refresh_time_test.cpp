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
  [[nodiscard]] Result<Ticket> select(const SelectRequest& request, const Selection& out,
                                      Queue& queue, const Ops& ops) const override {
    return policy_->select(request, out, queue, ops);
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

struct Outcome {
  Duration longest{};  ///< slice
  std::uint64_t refreshes = 0;
  std::size_t caught_up = 0;
};

/// Decodes with refreshes whose pieces take `times`. Indexes have so many pieces that more than a
/// block of tokens comes meanwhile: where nothing is clustered, because there are many heads.
Outcome decode(const std::string& policy, const std::vector<Duration>& times, Duration slice) {
  ManualClock clock;
  PieceTimes piece_times(clock, times);
  const auto timed = std::make_shared<TimedPolicy>(policy, piece_times);
  offload::SeededScheduler scheduler(3);
  Scenario scenario;
  scenario.backend.clock = &clock;
  scenario.backend.scheduler = &scheduler;
  if (!timed->traits().clusters) {
    scenario.runtime.shape.query_heads = scenario.runtime.shape.kv_heads = 48;
  }
  scenario.runtime.own_policy = timed;
  scenario.runtime.refresh = {.tokens = 40, .slice = slice};
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(drive.prefill(120).has_value());
  EXPECT_TRUE(drive.steps(400).has_value());
  const SequenceCounters counters = drive.sequence().counters();
  return {counters.longest_refresh_slice, counters.refreshes, timed->caught_up()};
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
  [[nodiscard]] Result<Ticket> select(const SelectRequest& /*request*/, const Selection& /*out*/,
                                      Queue& queue, const Ops& /*ops*/) const override {
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

}  // namespace
}  // namespace terrace
