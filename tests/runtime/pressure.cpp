#include "runtime/pressure.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "runtime/naive_attention.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::testing {
namespace {

bool lacks_memory(const Status& done) { return !done && done.error().code == Errc::out_of_memory; }

/// Draws settings that change no bit, or that leave prompts exact.
void choose_settings(RuntimeOptions& options, Rng& rng) {
  if (rng.below(3) == 0) options.index_residency = IndexResidency::automatic;
  if (rng.below(4) == 0) options.dense_layers = 1;
  if (rng.below(4) == 0) options.mass_every = 2;
  if (rng.below(4) == 0) options.until_ready = UntilReady::exact;
  if (rng.below(3) == 0) {
    options.budget = {.kind = TokenBudget::Kind::share, .value = 0.05 + 0.9 * rng.uniform()};
    options.budget_min = 1 + rng.below(80);
  }
}

OwnQueue on_worker(Runtime& runtime) {
  return {nullptr, runtime.backend().make_queue({.name = "compute"}).value()};
}

}  // namespace

Scenario scenario_under_pressure(Rng& rng, std::size_t number) {
  const auto policies = policies::retrieval_policies();
  Scenario scenario = random_scenario(rng);
  RuntimeOptions& options = scenario.runtime;
  options.policy = policies[number % policies.size()].name;
  const auto policy = policies::make_retrieval_policy(options.policy, options.retrieval).value();
  const bool clusters = policy->index_layout(options.shape)->chunk_clusters > 0;
  if (!clusters && options.cache.granularity == CacheGranularity::cluster) {
    options.cache.granularity = CacheGranularity::block;
  }
  choose_settings(options, rng);
  return scenario;
}

Scenario with_limit(Scenario scenario, std::size_t threads, Rng& rng) {
  const std::size_t shared = scenario.least_step_bytes(400);
  scenario.backend.device_memory_limit = threads * (shared + 40'000 + rng.below(260'000));
  return scenario;
}

Pressure::Pressure(Runtime& runtime, Scenario roomy, Rng rng)
    : rng_(rng),
      roomy_(std::move(roomy)),
      queries_(rng_.below(3) == 0 ? Dtype::f16 : Dtype::f32),
      runtime_(runtime),
      own_(rng_.below(2) == 0 ? make_own_queue(runtime_.backend()) : on_worker(runtime_)),
      batch_(runtime_, sequences, std::move(own_.queue)) {
  batch_.round_queries(queries_, /*in_f32=*/false);
}

void Pressure::take_steps(std::size_t count) {
  for (std::size_t i = 0; i < sequences; ++i) {
    lives_.push_back({.traffic = batch_.traffic(i)});
    open(i);
  }
  for (std::size_t i = 0; i < count && !::testing::Test::HasFailure(); ++i) take_step();
}

void Pressure::close_all() {
  for (std::size_t i = 0; i < sequences && !::testing::Test::HasFailure(); ++i) close(i);
}

bool Pressure::went_well(const char* what, const Status& done) {
  if (done) return true;
  EXPECT_TRUE(lacks_memory(done)) << what << ": " << done.error().message();
  ++refused_;
  return false;
}

void Pressure::open(std::size_t i) {
  lives_[i] = {.traffic = Traffic(roomy_.runtime.shape, new_seed()), .queries = queries_};
  batch_.replace(i, runtime_.open_sequence().value(), lives_[i].traffic);
  if (rng_.below(8) != 0) announce(i, 1 + rng_.below(200));
}

void Pressure::announce(std::size_t i, std::size_t tokens) {
  // The prompt or the tokens before it may find no room for their index.
  if (!went_well("begin of a prompt", sequence(i).begin_prompt(tokens))) return;
  lives_[i].events.push_back({Event::Kind::prompt, tokens});
  lives_[i].prompt_left = tokens;
}

void Pressure::take_step() {
  if (rng_.below(3) == 0) change(rng_.below(sequences));
  std::vector<Member> members;
  std::vector<BatchMember> brought;
  for (std::size_t i = 0; i < sequences; ++i) {
    if (rng_.below(4) != 0 && sequence(i).phase() == SequencePhase::idle) {
      members.push_back(bring(i));
    }
  }
  if (members.empty()) return;
  for (std::size_t i = members.size(); i > 1; --i) {
    std::swap(members[i - 1], members[rng_.below(i)]);
  }
  for (const Member& member : members) brought.push_back(member.brings);
  if (rng_.below(16) == 0) {
    batch_.give_step_up(brought, rng_.below(roomy_.runtime.shape.layers + 1));
  } else {
    step(members, brought);
  }
}

Pressure::Member Pressure::bring(std::size_t i) {
  const Life& life = lives_[i];
  const std::size_t length = sequence(i).length();
  if (life.prompt_left > 0) {
    const std::size_t tokens = 1 + rng_.below(life.prompt_left);
    // Sums of a piece's weights cannot be taken apart.
    const bool in_part = !retains(roomy_) && rng_.below(6) == 0;
    return {{i, tokens}, in_part ? rng_.below(tokens + 1) : tokens, length};
  }
  const std::size_t most =
      retains(roomy_) ? std::min<std::size_t>(6, tokens_to_flush(sequence(i))) : 6;
  // Several tokens without an announcement begin a prompt.
  const bool drafts = !life.events.empty() && rng_.below(2) == 0;
  const std::size_t tokens = drafts ? 1 + rng_.below(most) : 1;
  return {{i, tokens}, drafts ? rng_.below(tokens + 1) : 1, length};
}

void Pressure::step(std::span<const Member> members, std::span<const BatchMember> brought) {
  std::vector<std::size_t> accepted;
  for (const Member& member : members) accepted.push_back(member.accepted);
  const std::vector<Status> statuses = batch_.step(brought, accepted);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Member& member = members[i];
    ++taken_;
    const bool done = went_well("step", statuses[i]);
    const std::size_t now = sequence(member.brings.sequence).length();
    // A window that finds no room pauses the sequence after the tokens that it has kept.
    const bool kept = done || (is_paused(member.brings.sequence) && now > member.length);
    ASSERT_EQ(now, member.length + (kept ? member.accepted : 0));
    if (kept) note(member);
  }
}

void Pressure::note(const Member& member) {
  Life& life = lives_[member.brings.sequence];
  life.longest = std::max(life.longest, sequence(member.brings.sequence).length());
  if (life.prompt_left > 0) {
    life.prompt_left -= member.accepted;
  } else {
    life.events.push_back({Event::Kind::decode, member.accepted, member.brings.tokens});
  }
}

void Pressure::change(std::size_t i) {
  Life& life = lives_[i];
  if (sequence(i).length() > longest || rng_.below(12) == 0) {
    close(i);
    open(i);
  } else if (is_paused(i)) {
    went_well("resume", sequence(i).resume());
  } else if (life.prompt_left > 0) {
    if (rng_.below(4) == 0) end_prompt(i);
  } else if (change_more(i)) {
    return;
  } else if (rng_.below(3) == 0) {
    announce(i, 1 + rng_.below(120));
  } else if (rng_.below(3) == 0) {
    cut(i);
  } else if (rng_.below(2) == 0) {
    pause(i);
  } else {
    fork(i, (i + 1) % sequences);
  }
}

/// The rest of a prompt does not come.
void Pressure::end_prompt(std::size_t i) {
  Life& life = lives_[i];
  // If indexing the prompt finds no room, the next step tries again.
  went_well("end of a prompt", sequence(i).begin_prompt(0));
  Event& prompt = life.events.back();
  prompt.tokens -= life.prompt_left;
  life.prompt_left = 0;
  if (prompt.tokens == 0) life.events.pop_back();
}

void Pressure::cut(std::size_t i) {
  const std::size_t before = sequence(i).length();
  if (before < 8) return;
  const Result<std::size_t> shortest = shortest_cut(sequence(i), roomy_);
  if (!went_well("indexes", status_of(shortest))) return;
  const std::size_t length = std::max(before - rng_.below(before / 4), *shortest);
  const bool done = went_well("cut", sequence(i).truncate(length));
  if (done || (is_paused(i) && sequence(i).length() == length)) {
    lives_[i].events.push_back({Event::Kind::cut, length});
  }
  ASSERT_EQ(sequence(i).length(), done || is_paused(i) ? length : before);
}

void Pressure::pause(std::size_t i) {
  if (roomy_.runtime.policy == "full") return;
  went_well("pause", sequence(i).pause());
}

/// A fork of sequence i takes the place of another one.
void Pressure::fork(std::size_t i, std::size_t place) {
  auto twin = sequence(i).fork();
  if (!went_well("fork", status_of(twin))) return;
  close(place);
  const std::size_t outputs = lives_[i].outputs_before + batch_.outputs(i).size();
  Life& life = lives_[place] = lives_[i];
  life.outputs_before = outputs;
  // An index remembers the rows that it was trained on before a cut: these must not change.
  const std::size_t length = sequence(i).length();
  if (length >= life.longest) {
    life.longest = length;
    life.traffic = life.traffic.branch(length, new_seed());
  }
  batch_.replace(place, std::move(*twin), life.traffic);
}

void Pressure::close(std::size_t i) {
  ASSERT_NE(sequence(i).phase(), SequencePhase::lost);
  if (is_paused(i)) went_well("resume", sequence(i).resume());
  if (!is_paused(i)) {
    drops(roomy_) ? batch_.drive(i).expect_kept_rows_right()
                  : batch_.drive(i).expect_all_rows_right();
  }
  const Life& life = lives_[i];
  const std::vector<StepOutput>& outputs = batch_.outputs(i);
  const std::vector<StepOutput> expected = alone_as(life, outputs);
  ASSERT_EQ(expected.size(), life.outputs_before + outputs.size() + life.prompt_left);
  if (const std::size_t token = first_difference(life, outputs, expected); token < outputs.size()) {
    ASSERT_EQ(outputs[token], expected[life.outputs_before + token])
        << "token " << token << " of its own; life: " << life;
  }
  if (queries_ == Dtype::f32) expect_exact_prompts(life, expected);
}

/// Returns what the life's outputs are alone, after the past that fits `outputs` if there is one.
std::vector<StepOutput> Pressure::alone_as(const Life& life,
                                           std::span<const StepOutput> outputs) const {
  std::vector<StepOutput> expected = alone(roomy_, life);
  for (std::size_t past = 1;
       past < life.pasts.size() && first_difference(life, outputs, expected) < outputs.size();
       ++past) {
    expected = alone(roomy_, life, past);
  }
  return expected;
}

/// Returns the first output that is certain and not as expected; their number if there is none.
std::size_t Pressure::first_difference(const Life& life, std::span<const StepOutput> outputs,
                                       std::span<const StepOutput> expected) const {
  const std::vector<bool> certain = certain_tokens(life);
  const auto differs = [&](std::size_t token) {
    const std::size_t at = life.outputs_before + token;
    return at >= expected.size() || (certain[at] && outputs[token] != expected[at]);
  };
  std::size_t token = 0;
  while (token < outputs.size() && !differs(token)) ++token;
  return token;
}

/// Returns which outputs of a life time has no part in.
std::vector<bool> Pressure::certain_tokens(const Life& life) const {
  const bool waits = roomy_.runtime.until_ready == UntilReady::wait;
  const bool exact = roomy_.runtime.prompts == PromptAttention::exact && !drops(roomy_);
  std::vector<bool> certain;
  for (const auto& [kind, tokens, brought] : life.events) {
    if (kind != Event::Kind::prompt && kind != Event::Kind::decode) continue;
    certain.insert(certain.end(), tokens, waits || (exact && kind == Event::Kind::prompt));
  }
  return certain;
}

/// Holds the last token of each prompt that attends to all rows against attention in double.
void Pressure::expect_exact_prompts(const Life& life, std::span<const StepOutput> outputs) const {
  const bool exact = roomy_.runtime.prompts == PromptAttention::exact;
  std::size_t length = life.begun_with;
  std::size_t given = 0;
  for (const auto& [kind, tokens, brought] : life.events) {
    // Later ones attend to what retention has left.
    const bool first = given == 0 && life.begun_with == 0;
    if (kind == Event::Kind::cut) length = tokens;
    if (kind != Event::Kind::prompt && kind != Event::Kind::decode) continue;
    length += tokens;
    given += tokens;
    if (kind == Event::Kind::prompt && (first || (exact && !drops(roomy_)))) {
      expect_exact(life.traffic, length - 1, outputs[given - 1]);
    }
  }
}

void Pressure::expect_exact(const Traffic& traffic, std::size_t position,
                            const StepOutput& output) const {
  const KvShape& shape = roomy_.runtime.shape;
  const std::size_t floats = shape.query_heads * shape.head_dim;
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    const std::vector<float> query = traffic.query(layer, position);
    for (std::size_t head = 0; head < shape.query_heads; ++head) {
      NaiveAttention attention(shape,
                               std::span(query).subspan(head * shape.head_dim, shape.head_dim));
      for (std::size_t at = 0; at <= position; ++at) {
        attention.add(traffic.row(layer, head / shape.group(), at).data(), 0);
      }
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        ASSERT_NEAR(output[layer * floats + head * shape.head_dim + i], attention.output(i), 1e-4)
            << "position " << position << " layer " << layer << " head " << head;
      }
    }
  }
}

}  // namespace terrace::testing
