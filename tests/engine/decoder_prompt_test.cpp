// Prompts: no bit depends on how they are cut, nor on where earlier rows lie.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>

#include "decoding.hpp"
#include "doubles/fault_backend.hpp"
#include "golden.hpp"
#include "runtime/own_policy.hpp"
#include "terrace/engine/reference_decoder.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t context = 300;
constexpr std::size_t steps = 8;

LlamaModel load_tiny() { return LlamaModel::load(tiny_model()).value(); }

/// A text of several tiles of rows.
std::vector<TokenId> text_of(std::size_t count) {
  const auto golden = tokens_of(cases_of("tiny_logits.json").back());
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(golden[(i + i / 97) % golden.size()]);
  return tokens;
}

/// Logits after a prompt, and after each of some steps.
std::vector<std::vector<float>> logits_behind(Decoding& run, std::span<const TokenId> tokens) {
  std::vector<std::vector<float>> logits;
  const Status prompt = run.prefill(tokens.first(context));
  EXPECT_TRUE(prompt.has_value()) << prompt.error().message();
  logits.push_back(run.logits());
  for (std::size_t i = 0; i < steps; ++i) {
    const Status done = run.step(tokens[context + i]);
    EXPECT_TRUE(done.has_value()) << done.error().message();
    logits.push_back(run.logits());
  }
  return logits;
}

TEST(DecoderPrompt, GivesTheSameBitsHoweverItIsCut) {
  struct Cut {
    std::size_t piece, chunk;
  };
  const LlamaModel tiny = load_tiny();
  const auto tokens = text_of(context + steps);
  for (const char* const policy : {"full", "streaming", "pqcache", "qpq", "wave"}) {
    Decoding whole(tiny, {.policy = policy, .budget = small_budget});
    const auto expected = logits_behind(whole, tokens);
    for (const auto& [piece, chunk] : {Cut{1, 512}, Cut{7, 512}, Cut{64, 1}, Cut{128, 512},
                                       Cut{200, 128}, Cut{299, 256}, Cut{0, 128}, Cut{0, 1}}) {
      if (piece == 1 && std::string(policy) != "qpq") continue;  // so many steps take long
      SCOPED_TRACE(fmt::format("{}, pieces of {}, chunks of {}", policy, piece, chunk));
      Decoding run(
          tiny,
          {.policy = policy, .budget = small_budget, .piece_tokens = piece, .chunk_tokens = chunk});
      EXPECT_EQ(logits_behind(run, tokens), expected);
    }
  }
}

TEST(DecoderPrompt, MeetsTheReferenceDecoder) {
  const LlamaModel tiny = load_tiny();
  const auto tokens = text_of(context);
  Serial serial;
  auto reference =
      ReferenceDecoder::create(tiny, {.kv_dtype = Dtype::f32, .capacity = context}, serial).value();
  ASSERT_TRUE(reference.prefill(std::span(tokens).first(context - 1)).has_value());
  std::vector<float> expected(tiny.config().vocabulary);
  ASSERT_TRUE(reference.step(tokens.back(), expected).has_value());
  for (const std::size_t piece : {0U, 70U}) {
    Decoding run(tiny, {.policy = "streaming", .budget = small_budget, .piece_tokens = piece});
    ASSERT_TRUE(run.prefill(tokens).has_value());
    const auto logits = run.logits();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(logits[i], expected[i], f32_tolerance) << piece;
    }
  }
}

TEST(DecoderPrompt, TakesSmallerPiecesWhereMemoryIsShort) {
  const LlamaModel tiny = load_tiny();
  const auto tokens = text_of(2 * context);
  const auto logits_of = [&](Decoding& run) {
    // After the first turn there is memory for steps of as many tokens.
    for (const auto turn : {std::span(tokens).first(64), std::span(tokens).subspan(64)}) {
      const Status done = run.prefill(turn);
      EXPECT_TRUE(done.has_value()) << done.error().message();
    }
    return run.logits();
  };
  const auto peak_of = [](Decoding& run) {
    return run.runtime->backend().memory(Tier::device).peak;
  };
  DecodingOptions options{.policy = "streaming", .budget = small_budget};
  Decoding whole(tiny, options);
  const auto expected = logits_of(whole);
  options.piece_tokens = 64;
  Decoding pieces(tiny, options);
  ASSERT_EQ(logits_of(pieces), expected);
  const std::size_t limit = peak_of(pieces) + (peak_of(whole) - peak_of(pieces)) / 3;
  options.piece_tokens = 0;
  Decoding run(tiny, options, offload::HostBackend::create({.device_memory_limit = limit}).value());
  EXPECT_EQ(logits_of(run), expected);
  EXPECT_LE(peak_of(run), limit);
}

/// Policies that look at a prompt in ways of their own: copies, an index, its last queries, all its
/// attention.
struct PromptReader {
  std::string policy;
  std::string retention = "none";
};

TEST(DecoderPrompt, ForksIntoPromptsThatEndInTheirOwnWay) {
  const LlamaModel tiny = load_tiny();
  const auto tokens = text_of(context + steps);
  const auto prompt = std::span(tokens).first(context);
  for (const auto& [policy, retention] :
       {PromptReader{"full"}, PromptReader{"pqcache"}, PromptReader{"streaming", "snapkv"},
        PromptReader{"streaming", "h2o"}, PromptReader{"streaming", "chelsea"}}) {
    SCOPED_TRACE(policy + " " + retention);
    const DecodingOptions options{.policy = policy, .budget = small_budget, .retention = retention};
    Decoding whole(tiny, options);
    const auto expected = logits_behind(whole, tokens);
    Decoding trunk(tiny, options);
    ASSERT_TRUE(trunk.prefill(prompt.first(250), /*to_come=*/1).has_value());
    EXPECT_EQ(trunk.sequence->retention().flushes, 0U);
    for (int turn = 0; turn < 2; ++turn) {  // the second finds the trunk as the first did
      auto twin = trunk.sequence->fork();
      ASSERT_TRUE(twin.has_value()) << twin.error().message();
      ASSERT_TRUE(trunk.decoder->prefill(**twin, prompt.subspan(250)).has_value());
      EXPECT_EQ(trunk.logits(), expected.front());
      for (std::size_t i = 0; i < steps; ++i) {
        ASSERT_TRUE(trunk.decoder->step(**twin, tokens[context + i]).has_value());
        EXPECT_EQ(trunk.logits(), expected[i + 1]) << i;
      }
      EXPECT_EQ((*twin)->retention().flushes, whole.sequence->retention().flushes);
    }
  }
}

TEST(DecoderPrompt, MeetsTheGoldenLogits) {
  const LlamaModel tiny = load_tiny();
  for (const json& golden : cases_of("tiny_logits.json")) {
    const auto tokens = tokens_of(golden);
    const auto positions = golden.at("positions").get<std::vector<std::size_t>>();
    Decoding run(tiny, {.policy = "streaming", .budget = small_budget, .piece_tokens = 48});
    std::size_t length = 0;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto turn = std::span(tokens).subspan(length, positions[i] + 1 - length);
      if (turn.empty()) continue;
      ASSERT_TRUE(run.prefill(turn).has_value());
      length = positions[i] + 1;
      EXPECT_LE(distance(run.decoder->logits(), golden.at("logits").at(i)), f32_tolerance);
    }
  }
}

TEST(DecoderPrompt, OfASecondTurnAttendsToRowsOfAllTiers) {
  const LlamaModel tiny = load_tiny();
  const auto tokens = text_of(2 * context);
  Decoding at_once(tiny, {.policy = "full"});
  ASSERT_TRUE(at_once.prefill(tokens).has_value());
  for (const char* const policy : {"full", "streaming", "pqcache"}) {
    SCOPED_TRACE(policy);
    Decoding run(tiny, {.policy = policy, .budget = small_budget});
    ASSERT_TRUE(run.prefill(std::span(tokens).first(context)).has_value());
    const Status second = run.prefill(std::span(tokens).subspan(context));
    ASSERT_TRUE(second.has_value()) << second.error().message();
    EXPECT_EQ(run.sequence->length(), 2 * context);
    EXPECT_EQ(run.logits(), at_once.logits());
    const bool keeps_all = std::string(policy) == "full";
    EXPECT_EQ(run.sequence->counters().bytes.streamed > 0, !keeps_all);
  }
}

TEST(DecoderPrompt, AfterDecodedTokensGivesTheSameBitsHoweverItIsCut) {
  const LlamaModel tiny = load_tiny();
  const auto tokens = text_of(context + steps + 150);
  std::vector<std::vector<float>> logits;
  for (const std::size_t piece : {0U, 41U}) {
    Decoding run(tiny, {.policy = "wave", .budget = small_budget, .piece_tokens = piece});
    logits_behind(run, tokens);
    ASSERT_TRUE(run.prefill(std::span(tokens).subspan(context + steps)).has_value());
    ASSERT_TRUE(run.step(tokens.front()).has_value());
    logits.push_back(run.logits());
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(DecoderPrompt, ThatFailsLeavesTheSequenceAtItsOldLength) {
  const LlamaModel tiny = load_tiny();
  const auto tokens = text_of(context + 201);
  const auto first = std::span(tokens).first(context);
  const auto turn = std::span(tokens).subspan(context, 200);
  auto backend = doubles::FaultBackend::wrap(offload::HostBackend::create({}).value());
  doubles::FaultBackend& faults = *backend;
  const DecodingOptions options{
      .policy = "streaming", .budget = small_budget, .piece_tokens = 150, .chunk_tokens = 128};
  Decoding run(tiny, options, std::move(backend));
  Decoding undisturbed(tiny, options);
  for (Decoding* const each : {&run, &undisturbed}) ASSERT_TRUE(each->prefill(first).has_value());
  // In each layer two pieces of work for each chunk (the prompt's first piece has two chunks, its
  // second piece one); and the logits.
  const std::size_t work = (2 + 1) * 2 * tiny.config().layers + 1;
  // The last one to fail is the first: tokens of the prompt are still to come then.
  for (std::size_t nth = work; nth >= 1; --nth) {
    SCOPED_TRACE(nth);
    faults.arm({.pieces = {{.phase = Phase::model, .nth = nth}}});
    EXPECT_FALSE(run.prefill(turn).has_value());
    EXPECT_EQ(faults.counters().pieces_failed, 1U);
    EXPECT_EQ(run.sequence->phase(), SequencePhase::idle);
    EXPECT_EQ(run.sequence->length(), context);
  }
  faults.arm({});
  // The next token does not belong to a prompt.
  for (Decoding* const each : {&run, &undisturbed}) {
    ASSERT_TRUE(each->step(tokens.back()).has_value());
  }
  EXPECT_EQ(run.logits(), undisturbed.logits());
  for (Decoding* const each : {&run, &undisturbed}) ASSERT_TRUE(each->prefill(turn).has_value());
  EXPECT_EQ(run.logits(), undisturbed.logits());
}

TEST(DecoderPrompt, RefusesRowsAndLogitsThatAreNotFinite) {
  const auto tokens = text_of(100);
  const LlamaModel wide = model_with("model.layers.1.self_attn.v_proj.weight", 60000);
  Decoding narrow(wide, {.policy = "streaming", .kv_dtype = Dtype::f16, .piece_tokens = 30});
  const Status rows = narrow.prefill(tokens);
  ASSERT_FALSE(rows.has_value());
  EXPECT_THAT(std::string(rows.error().message()),
              AllOf(HasSubstr("layer 1"), HasSubstr("--kv-dtype bf16")));
  EXPECT_EQ(narrow.sequence->length(), 0U);

  const LlamaModel broken = model_with("model.norm.weight", std::numeric_limits<float>::infinity());
  Decoding run(broken, {.policy = "pqcache", .budget = small_budget, .piece_tokens = 30});
  const Status logits = run.prefill(tokens);
  ASSERT_FALSE(logits.has_value());
  EXPECT_THAT(std::string(logits.error().message()), HasSubstr("position 99: a logit"));
  EXPECT_EQ(run.sequence->phase(), SequencePhase::idle);
  EXPECT_EQ(run.sequence->length(), 0U);
}

TEST(DecoderPrompt, RefusesNoTokensAndTokensThatTheModelLacks) {
  const LlamaModel tiny = load_tiny();
  Decoding run(tiny, {.policy = "streaming"});
  EXPECT_EQ(run.prefill({}).error().code, Errc::invalid_argument);
  EXPECT_EQ(run.prefill(std::vector{TokenId{65}, TokenId{9999}}).error().code,
            Errc::invalid_argument);
  ASSERT_TRUE(run.prefill(text_of(20)).has_value());
}

/// A policy that keeps the queries its indexes are built with.
class QueriesKept final : public terrace::testing::OwnPolicy {
 public:
  static constexpr std::size_t window = 70;
  QueriesKept() : OwnPolicy({.name = "kept", .query_window_tokens = window}) {}

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t part) const override {
    const std::lock_guard lock(mutex_);
    const auto queries = request.hints.query_window;
    queries_[index(request.layer)] = {queries.begin(), queries.end()};
    return OwnPolicy::build_part(request, part);
  }
  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> /*batch*/, Queue& /*queue*/,
                                      const Ops& /*ops*/) const override {
    return fail(Errc::unsupported, "no step is taken");
  }
  [[nodiscard]] std::map<std::size_t, std::vector<float>> queries() const {
    const std::lock_guard lock(mutex_);
    return queries_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::size_t, std::vector<float>> queries_;
};

TEST(DecoderPrompt, GivesAPolicyTheQueriesOfItsEnd) {
  const LlamaModel tiny = load_tiny();
  const ModelConfig& config = tiny.config();
  const auto tokens = text_of(context);
  const auto queries_of = [&](std::size_t piece) {
    const auto policy = std::make_shared<QueriesKept>();
    Decoding run(tiny, {.budget = small_budget, .piece_tokens = piece, .own_policy = policy});
    const Status done = run.prefill(tokens);
    EXPECT_TRUE(done.has_value()) << done.error().message();
    EXPECT_TRUE(run.sequence->clustering().has_value());
    return policy->queries();
  };
  const auto whole = queries_of(0);
  EXPECT_EQ(queries_of(40), whole);
  ASSERT_EQ(whole.size(), config.layers);
  for (const auto& [layer, queries] : whole) {
    ASSERT_EQ(queries.size(), QueriesKept::window * config.query_size()) << layer;
  }
  // In the first layer those of the tokens' embeddings.
  Serial serial;
  Workspace workspace = tiny.make_workspace(context).value();
  std::vector<float> hidden(context * config.hidden_size);
  ASSERT_TRUE(tiny.embed(tokens, hidden.data()).has_value());
  std::vector<float> query(context * config.query_size());
  std::vector<float> rows(2 * context * config.kv_size());
  tiny.project_qkv(
      0, hidden.data(), {0, context},
      {.query = query.data(), .key = rows.data(), .value = &rows[context * config.kv_size()]},
      workspace, serial);
  const auto expected = std::span(query).last(whole.at(0).size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(whole.at(0)[i], expected[i], 1e-3);
  }
}

/// Notes which rows of each layer come, and in which order.
class RowsSeen final : public KvObserver {
 public:
  void on_rows(std::size_t layer, TokenRange tokens, const KvTensors& kv) override {
    const float first = load_f32(kv.keys, Dtype::f32, 0);
    ranges[layer].push_back(tokens);
    first_elements[layer].push_back(first);
  }
  std::map<std::size_t, std::vector<TokenRange>> ranges;
  std::map<std::size_t, std::vector<float>> first_elements;
};

TEST(DecoderPrompt, ShowsObserversItsRowsAndTellsHowFarItIs) {
  const LlamaModel tiny = load_tiny();
  Decoding run(tiny, {.policy = "streaming"});
  std::vector<double> shares;
  const auto decoder = Decoder::create(tiny, *run.runtime,
                                       {.progress = [&](double share) { shares.push_back(share); }})
                           .value();
  RowsSeen seen;
  decoder->observe(&seen);
  ASSERT_TRUE(decoder->prefill(*run.sequence, text_of(100), {.piece_tokens = 40}).has_value());
  // Once a layer of each piece, and at the end.
  ASSERT_EQ(shares.size(), 3 * tiny.config().layers + 1);
  EXPECT_TRUE(std::ranges::is_sorted(shares));
  EXPECT_EQ(shares.front(), 0);
  EXPECT_EQ(shares[tiny.config().layers], 0.4);
  EXPECT_EQ(shares.back(), 1);
  ASSERT_EQ(seen.ranges.size(), tiny.config().layers);
  for (std::size_t layer = 0; layer < tiny.config().layers; ++layer) {
    EXPECT_THAT(seen.ranges[layer],
                ::testing::ElementsAre(TokenRange{0, 40}, TokenRange{40, 80}, TokenRange{80, 100}));
    for (std::size_t piece = 0; piece < 3; ++piece) {
      std::vector<std::byte> row(tiny.config().kv_shape(Dtype::f32).row_bytes());
      ASSERT_TRUE(run.sequence
                      ->read_rows(static_cast<LayerId>(layer), HeadId{0},
                                  std::array{static_cast<std::uint32_t>(40 * piece)}, row)
                      .has_value());
      EXPECT_EQ(load_f32(row.data(), Dtype::f32, 0), seen.first_elements[layer][piece]);
    }
  }
}

}  // namespace
}  // namespace terrace::engine
