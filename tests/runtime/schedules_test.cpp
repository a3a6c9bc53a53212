// Random schedules of a few sequences in one runtime: prompts in pieces, decoding, drafts with some
// accepted tokens, cuts, pauses, forks, steps that are given up, sequences that cannot take part,
// closing. Each sequence's outputs are the bits of the same life lived alone, with its prompts
// whole and its tokens one by one.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "runtime/lives.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::drops;
using testing::Event;
using testing::Life;
using testing::random_holding;
using testing::random_retention;
using testing::random_scenario;
using testing::retains;
using testing::Scenario;
using testing::StepOutput;
using testing::Traffic;

class Schedule {
 public:
  Schedule(std::uint64_t seed, Scenario (*make_scenario)(Rng&))
      : rng_(seed),
        scenario_(make_scenario(rng_)),
        runtime_(scenario_.open()),
        batch_(*runtime_, sequences) {
    for (std::size_t i = 0; i < sequences; ++i) {
      lives_.push_back({.traffic = batch_.traffic(i)});
      open(i);
    }
  }

  void take_steps(std::size_t count) {
    for (std::size_t i = 0; i < count && !::testing::Test::HasFailure(); ++i) take_step();
  }

  /// Compares all lives that are left.
  void end() {
    for (std::size_t i = 0; i < sequences; ++i) close(i);
  }

  [[nodiscard]] const Scenario& scenario() const noexcept { return scenario_; }

 private:
  static constexpr std::size_t sequences = 4;
  static constexpr std::size_t longest = 260;  // tokens of a life: what it takes alone is checked

  struct Member {
    BatchMember brings;
    std::size_t accepted = 0;
  };

  void open(std::size_t i) {
    lives_[i] = {.traffic = Traffic(scenario_.runtime.shape, 100 * ++opened_)};
    batch_.replace(i, runtime_->open_sequence().value(), lives_[i].traffic);
    announce(i, 20 + rng_.below(100));
  }

  void announce(std::size_t i, std::size_t tokens) {
    ASSERT_TRUE(batch_.sequence(i).begin_prompt(tokens).has_value());
    lives_[i].events.push_back({Event::Kind::prompt, tokens});
    lives_[i].prompt_left = tokens;
  }

  /// A life that ends in the middle of a prompt is compared up to there alone.
  void close(std::size_t i) {
    Life& life = lives_[i];
    if (drops(scenario_)) {
      batch_.drive(i).expect_kept_rows_right();
    } else {
      batch_.drive(i).expect_all_rows_right();
    }
    std::vector<StepOutput> expected = testing::alone(scenario_, life);
    const std::vector<StepOutput>& outputs = batch_.outputs(i);
    ASSERT_EQ(expected.size(), life.outputs_before + outputs.size() + life.prompt_left);
    for (std::size_t token = 0; token < outputs.size(); ++token) {
      ASSERT_EQ(outputs[token], expected[life.outputs_before + token])
          << "token " << token << " of its own; life: " << life;
    }
  }

  void take_step() {
    if (rng_.below(4) == 0) change(rng_.below(sequences));
    std::vector<Member> members;
    for (std::size_t i = 0; i < sequences; ++i) {
      if (rng_.below(4) != 0) members.push_back(bring(i));
    }
    if (members.empty()) return;
    for (std::size_t i = members.size(); i > 1; --i) {
      std::swap(members[i - 1], members[rng_.below(i)]);
    }
    std::vector<BatchMember> brought;
    for (const Member& member : members) brought.push_back(member.brings);
    if (rng_.below(16) == 0) {
      batch_.give_step_up(brought, rng_.below(scenario_.runtime.shape.layers + 1));
    } else {
      step(members, brought);
    }
  }

  Member bring(std::size_t i) {
    Life& life = lives_[i];
    if (life.prompt_left > 0) {
      const std::size_t tokens = 1 + rng_.below(life.prompt_left);
      return {{i, tokens}, tokens};
    }
    const std::size_t most =
        retains(scenario_) ? std::min<std::size_t>(6, testing::tokens_to_flush(batch_.sequence(i)))
                           : 6;
    const std::size_t tokens = rng_.below(2) == 0 ? 1 : 1 + rng_.below(most);
    return {{i, tokens}, rng_.below(tokens + 1)};
  }

  void step(std::span<const Member> members, std::span<const BatchMember> brought) {
    // Now and then one cannot take part.
    const std::size_t absent = rng_.below(8) == 0 ? rng_.below(members.size()) : members.size();
    if (absent < members.size()) pause(members[absent].brings.sequence);
    std::vector<std::size_t> accepted;
    for (const Member& member : members) accepted.push_back(member.accepted);
    const std::vector<Status> statuses = batch_.step(brought, accepted);
    for (std::size_t i = 0; i < members.size(); ++i) {
      ASSERT_EQ(statuses[i].has_value(), i != absent) << statuses[i].error().message();
      if (i != absent) note(members[i]);
    }
    if (absent < members.size()) resume(members[absent].brings.sequence);
  }

  void note(const Member& member) {
    Life& life = lives_[member.brings.sequence];
    life.longest = std::max(life.longest, batch_.sequence(member.brings.sequence).length());
    if (life.prompt_left > 0) {
      life.prompt_left -= member.accepted;
    } else {
      life.events.push_back({Event::Kind::decode, member.accepted, member.brings.tokens});
    }
  }

  void pause(std::size_t i) { ASSERT_TRUE(batch_.sequence(i).pause().has_value()); }
  void resume(std::size_t i) { ASSERT_TRUE(batch_.sequence(i).resume().has_value()); }

  void change(std::size_t i) {
    Life& life = lives_[i];
    Sequence& sequence = batch_.sequence(i);
    if (sequence.length() > longest || rng_.below(12) == 0) {
      close(i);
      open(i);
    } else if (life.prompt_left > 0) {
      return;
    } else if (rng_.below(3) == 0) {
      announce(i, 1 + rng_.below(60));
    } else if (rng_.below(3) == 0) {
      // Shorter than what is always attended a sequence has no index that it could go on with.
      const std::size_t cut = sequence.length() - rng_.below(sequence.length() / 4);
      const std::size_t length = std::max(cut, testing::shortest_cut(sequence, scenario_).value());
      ASSERT_TRUE(sequence.truncate(length).has_value());
      life.events.push_back({Event::Kind::cut, length});
    } else if (rng_.below(2) == 0) {
      pause(i);
      resume(i);
      life.events.push_back({Event::Kind::pause});
    } else {
      fork(i, (i + 1) % sequences);
    }
  }

  /// A fork of sequence i takes the place of another one.
  void fork(std::size_t i, std::size_t place) {
    close(place);
    const std::size_t outputs = lives_[i].outputs_before + batch_.outputs(i).size();
    Life& life = lives_[place] = lives_[i];
    life.outputs_before = outputs;
    // An index remembers the rows that it was trained on before a cut: these must not change.
    const std::size_t length = batch_.sequence(i).length();
    if (length >= life.longest) {
      life.longest = length;
      life.traffic = life.traffic.branch(length, 100 * ++opened_);
    }
    batch_.replace(place, batch_.sequence(i).fork().value(), life.traffic);
  }

  Rng rng_;
  Scenario scenario_;
  std::unique_ptr<Runtime> runtime_;
  Batch batch_;
  std::vector<Life> lives_;
  std::uint64_t opened_ = 0;
};

void expect_lives_alone(std::uint64_t seed, Scenario (*make_scenario)(Rng&) = random_scenario) {
  // A step is of three sequences, on average.
  constexpr std::size_t steps = 120;
  Schedule schedule(seed, make_scenario);
  const RuntimeOptions& options = schedule.scenario().runtime;
  SCOPED_TRACE(::testing::Message() << "seed " << seed << ", policy " << options.policy
                                    << ", retention " << options.retention_policy);
  schedule.take_steps(steps);
  schedule.end();
}

TEST(Schedules, GiveEachSequenceTheBitsOfItsLifeAlone) {
  for (std::uint64_t seed = 0; seed < testing::random_rounds(300); ++seed) {
    expect_lives_alone(seed);
    ASSERT_FALSE(HasFailure());
  }
}

TEST(Schedules, GiveEachSequenceThatRetainsTheBitsOfItsLifeAlone) {
  for (std::uint64_t seed = 0; seed < testing::random_rounds(300); ++seed) {
    expect_lives_alone(seed, random_retention);
    ASSERT_FALSE(HasFailure());
  }
}

TEST(Schedules, GiveEachSequenceThatHoldsEntriesTheBitsOfItsLifeAlone) {
  for (std::uint64_t seed = 0; seed < testing::random_rounds(300); ++seed) {
    expect_lives_alone(seed, random_holding);
    ASSERT_FALSE(HasFailure());
  }
}

TEST(Schedules, StreamAnIndexAnewThatADraftExtendsBeforeThereIsSomethingToSelect) {
  expect_lives_alone(201);
}

}  // namespace
}  // namespace terrace
