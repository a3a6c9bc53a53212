// Refreshes that take longer than many steps: tokens that come meanwhile are caught up with, and a
// sequence that is cut, paused or forked meanwhile loses nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

constexpr std::size_t prompt = 120;
constexpr std::size_t refresh_tokens = 40;

/// The part of a refresh that is held up until the gate is opened.
enum class Held { building, catching_up };

/// A policy whose refreshes wait at a gate.
class HeldPolicy final : public RetrievalPolicy {
 public:
  HeldPolicy(const std::string& name, Held held)
      : policy_(policies::make_retrieval_policy(name).value()), held_(held) {}

  void open_gate() noexcept { open_ = true; }
  [[nodiscard]] bool waits() const noexcept { return waits_; }

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
  [[nodiscard]] RowCounts rows_within(const SelectRequest& request) const noexcept override {
    return policy_->rows_within(request);
  }
  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept override {
    return policy_->select_scratch_floats(shape, candidates);
  }
  [[nodiscard]] std::size_t build_parts(const BuildRequest& request) const noexcept override {
    return policy_->build_parts(request);
  }
  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t part) const override {
    const bool catches_up = request.extends();
    const bool refreshes = request.anew && request.cancelled != nullptr;
    if (refreshes && catches_up == (held_ == Held::catching_up)) wait_at_gate(*request.cancelled);
    return policy_->build_part(request, part);
  }
  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return policy_->select(batch, queue, ops);
  }
  [[nodiscard]] GroupRests rests(const RestsRequest& request) const override {
    return policy_->rests(request);
  }

 private:
  void wait_at_gate(const std::atomic<bool>& cancelled) const {
    waits_ = true;
    while (!open_ && !cancelled) std::this_thread::yield();
    waits_ = false;
  }
  [[nodiscard]] Result<bool> do_cut(const BuildRequest& request) const override {
    return policy_->cut(request);
  }

  std::unique_ptr<RetrievalPolicy> policy_;
  Held held_;
  std::atomic<bool> open_{false};
  mutable std::atomic<bool> waits_{false};
};

/// A sequence whose refreshes wait at a gate.
class HeldDrive {
 public:
  HeldDrive(const std::string& policy, Held held, RefreshOptions refresh)
      : policy_(std::make_shared<HeldPolicy>(policy, held)),
        scenario_(scenario(refresh)),
        runtime_(scenario_.open()),
        traffic_(scenario_.runtime.shape, 1),
        drive_(*runtime_, traffic_) {
    EXPECT_TRUE(drive_.prefill(prompt).has_value());
  }
  ~HeldDrive() { policy_->open_gate(); }

  /// Decodes until a refresh waits, and then for more than a block of tokens.
  void step_into_a_refresh() {
    for (int i = 0; i < 400 && !policy_->waits(); ++i) {
      ASSERT_TRUE(drive_.step().has_value());
      std::this_thread::yield();
    }
    ASSERT_TRUE(drive_.steps(2 * scenario_.runtime.block_tokens).has_value());
  }

  /// Decodes until a refresh of `drive` has taken over.
  void finish_a_refresh(Drive& drive) {
    policy_->open_gate();
    const std::uint64_t before = drive.sequence().counters().refreshes;
    for (int i = 0; i < 2000 && drive.sequence().counters().refreshes == before; ++i) {
      ASSERT_TRUE(drive.step().has_value());
    }
    EXPECT_GT(drive.sequence().counters().refreshes, before);
  }

  Drive& fork() {
    twin_ = std::make_unique<Drive>(drive_.sequence().fork().value(), *runtime_, traffic_);
    return *twin_;
  }
  [[nodiscard]] Drive& drive() noexcept { return drive_; }

 private:
  [[nodiscard]] Scenario scenario(RefreshOptions refresh) const {
    Scenario scenario;
    scenario.runtime.own_policy = policy_;
    scenario.runtime.refresh = refresh;
    return scenario;
  }

  std::shared_ptr<HeldPolicy> policy_;
  Scenario scenario_;
  std::unique_ptr<Runtime> runtime_;
  Traffic traffic_;
  Drive drive_;
  std::unique_ptr<Drive> twin_;
};

class EachInterruption : public ::testing::TestWithParam<std::string> {
 protected:
  /// Steps into a refresh, does `interrupt` and goes on; `interrupt` returns the sequence that goes
  /// on.
  template <typename Interrupt>
  void expect_nothing_lost(Interrupt interrupt) {
    for (const Held held : {Held::building, Held::catching_up}) {
      HeldDrive refreshed(GetParam(), held, {.tokens = refresh_tokens});
      if (held == Held::building) {
        refreshed.step_into_a_refresh();
      } else {
        ASSERT_TRUE(refreshed.drive().steps(100).has_value());
      }
      const std::size_t before = refreshed.drive().outputs().size();
      Drive& goes_on = interrupt(refreshed);
      const std::size_t then = goes_on.outputs().size();
      refreshed.finish_a_refresh(goes_on);
      ASSERT_TRUE(goes_on.steps(50).has_value());
      goes_on.expect_all_rows_right();

      // A refresh of an index that forgets nothing changes no bit.
      if (GetParam() != "oracle" && GetParam() != "quest") continue;
      HeldDrive plain(GetParam(), held, {});
      ASSERT_TRUE(plain.drive().steps(before).has_value());
      Drive& expected = interrupt(plain);
      ASSERT_TRUE(expected.steps(goes_on.outputs().size() - then).has_value());
      EXPECT_EQ(goes_on.outputs(), expected.outputs());
    }
  }
};

TEST_P(EachInterruption, ByNothingIsCaughtUpWith) {
  expect_nothing_lost([](HeldDrive& held) -> Drive& { return held.drive(); });
}

TEST_P(EachInterruption, ByACutLosesNothing) {
  expect_nothing_lost([](HeldDrive& held) -> Drive& {
    const std::size_t length = held.drive().sequence().length();
    EXPECT_TRUE(held.drive().sequence().truncate(length - 30).has_value());
    return held.drive();
  });
}

TEST_P(EachInterruption, ByAPauseLosesNothing) {
  expect_nothing_lost([](HeldDrive& held) -> Drive& {
    EXPECT_TRUE(held.drive().sequence().pause().has_value());
    EXPECT_TRUE(held.drive().sequence().resume().has_value());
    return held.drive();
  });
}

TEST_P(EachInterruption, ByAForkLosesNothingOfEither) {
  for (const bool twin_goes_on : {false, true}) {
    expect_nothing_lost([&](HeldDrive& held) -> Drive& {
      Drive& twin = held.fork();
      return twin_goes_on ? twin : held.drive();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EachInterruption,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace terrace
