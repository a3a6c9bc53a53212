// The decoder over a runtime: the logits of PyTorch, and a probe that measures what it says.
#include "terrace/engine/decoder.hpp"

#include <gmock/gmock.h>

#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "decoding.hpp"
#include "doubles/fault_backend.hpp"
#include "golden.hpp"
#include "terrace/engine/attention_probe.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

/// The largest difference from the golden logits when the tokens up to the first golden position
/// are prefilled and all others are decoded.
double golden_distance(const LlamaModel& model, const json& golden, const std::string& policy) {
  const auto tokens = tokens_of(golden);
  Decoding run(model, {.policy = policy, .rope_length = tokens.size()});
  const auto positions = golden.at("positions").get<std::vector<std::size_t>>();
  std::size_t position = positions.front() + 1;
  EXPECT_TRUE(run.prefill(std::span(tokens).first(position)).has_value());
  double largest = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    for (; position <= positions[i]; ++position) {
      const Status done = run.step(tokens[position]);
      EXPECT_TRUE(done.has_value()) << done.error().message();
    }
    largest = std::max(largest, distance(run.decoder->logits(), golden.at("logits").at(i)));
  }
  return largest;
}

TEST(Decoder, MeetsTheGoldenLogitsWithFullAttention) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  for (const json& golden : cases_of("tiny_logits.json")) {
    EXPECT_LE(golden_distance(tiny, golden, "full"), f32_tolerance);
  }
  const LlamaModel llama3 =
      LlamaModel::load(std::string(TERRACE_GOLDEN_FOLDER) + "/llama3_rope_model").value();
  for (const json& golden : cases_of("llama3_rope_logits.json")) {
    EXPECT_LE(golden_distance(llama3, golden, "full"), f32_tolerance);
  }
}

TEST(Decoder, MeetsTheGoldenLogitsWithBiasesAndEveryRopeScaling) {
  for (const json& golden : cases_of("variant_logits.json")) {
    SCOPED_TRACE(golden.at("config").dump());
    EXPECT_LE(golden_distance(load_variant(golden).value(), golden, "full"), f32_tolerance);
  }
}

TEST(Decoder, MeetsTheGoldenLogitsOfEveryArchitecture) {
  for (const json& golden : cases_of("architecture_logits.json")) {
    SCOPED_TRACE(golden.at("model"));
    const auto model = load_architecture(golden);
    ASSERT_TRUE(model.has_value()) << model.error().message();
    EXPECT_LE(golden_distance(*model, golden, "full"), f32_tolerance);
  }
}

TEST(Decoder, MeetsTheGoldenLogitsWhenTheBudgetIsTheContext) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  for (const json& golden : cases_of("tiny_logits.json")) {
    EXPECT_LE(golden_distance(tiny, golden, "pqcache"), f32_tolerance);
  }
}

TEST(Decoder, MissesTheGoldenLogitsWithOneWeightChanged) {
  const TemporaryFolder folder;
  copy_with_changed_weight(folder, "model.layers.2.mlp.down_proj.weight", 2.0F);
  const LlamaModel changed = LlamaModel::load(folder.path()).value();
  EXPECT_GT(golden_distance(changed, cases_of("tiny_logits.json").back(), "full"), f32_tolerance);
}

/// Holds the compute queue up, once, for longer than a hasty decoder waits.
class Latecomer final : public KvObserver {
 public:
  static constexpr Duration patience = std::chrono::milliseconds{50};

  void on_rows(std::size_t, TokenRange, const KvTensors&) override {
    if (!std::exchange(late_, true)) std::this_thread::sleep_for(4 * patience);
  }

 private:
  bool late_ = false;
};

TEST(Decoder, StepsWhenAPromptThatTookTooLongHasEnded) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  const auto tokens = tokens_of(cases_of("tiny_logits.json").back());
  const auto prompt = std::span(tokens).first(200);
  Decoding undisturbed(tiny, {.policy = "full"});
  ASSERT_TRUE(undisturbed.prefill(prompt).has_value());
  ASSERT_TRUE(undisturbed.step(tokens[200]).has_value());

  Decoding run(tiny, {.policy = "full"});
  ASSERT_TRUE(run.prefill(prompt).has_value());
  const auto hasty = Decoder::create(tiny, *run.runtime, {.deadline = Latecomer::patience}).value();
  const auto given_up = run.runtime->open_sequence().value();
  Latecomer observer;
  hasty->observe(&observer);
  const Status late = hasty->prefill(*given_up, prompt);
  ASSERT_FALSE(late.has_value());
  ASSERT_EQ(late.error().code, Errc::not_ready);
  Status done = hasty->step(*run.sequence, tokens[200]);
  while (!done && done.error().code == Errc::not_ready) {
    done = hasty->step(*run.sequence, tokens[200]);
  }
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_TRUE(std::ranges::equal(hasty->logits(), undisturbed.decoder->logits()));
}

TEST(Decoder, RefusesARuntimeOfAnotherShape) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  KvShape shape = tiny.config().kv_shape(Dtype::f16);
  --shape.layers;
  const auto runtime = Runtime::open({.shape = shape, .policy = "streaming"},
                                     offload::HostBackend::create({}).value())
                           .value();
  EXPECT_EQ(Decoder::create(tiny, *runtime, {}).error().code, Errc::invalid_argument);
}

TEST(Decoder, PrefillsASequenceWhenTheOneBeforeIsGone) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  const auto tokens = tokens_of(cases_of("tiny_logits.json").back());
  const auto prompt = std::span(tokens).first(200);
  Decoding run(tiny, {.policy = "streaming", .budget = small_budget});
  ASSERT_TRUE(run.prefill(prompt).has_value());
  const std::vector<float> logits(run.decoder->logits().begin(), run.decoder->logits().end());
  run.sequence.reset();
  run.sequence = run.runtime->open_sequence().value();
  const Status done = run.prefill(prompt.first(100));
  ASSERT_TRUE(done.has_value()) << done.error().message();
  run.sequence = run.runtime->open_sequence().value();
  ASSERT_TRUE(run.prefill(prompt).has_value());
  EXPECT_TRUE(std::ranges::equal(run.decoder->logits(), logits));
}

TEST(Decoder, StepsOnceMoreWhenAStepHasFailed) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  const auto tokens = tokens_of(cases_of("tiny_logits.json").back());
  const auto prompt = std::span(tokens).first(200);
  auto backend = doubles::FaultBackend::wrap(offload::HostBackend::create({}).value());
  doubles::FaultBackend& faults = *backend;
  Decoding run(tiny, {.policy = "streaming", .budget = small_budget}, std::move(backend));
  Decoding undisturbed(tiny, {.policy = "streaming", .budget = small_budget});
  for (Decoding* const each : {&run, &undisturbed}) {
    ASSERT_TRUE(each->prefill(prompt).has_value());
  }
  ASSERT_TRUE(undisturbed.step(tokens[200]).has_value());
  // Two pieces a layer, and the logits.
  const std::size_t pieces = 2 * tiny.config().layers + 1;
  for (std::size_t nth = 1; nth <= pieces; ++nth) {
    SCOPED_TRACE(nth);
    faults.arm({.pieces = {{.phase = Phase::model, .nth = nth}}});
    EXPECT_FALSE(run.step(tokens[200]).has_value());
    EXPECT_EQ(faults.counters().pieces_failed, 1U);
    EXPECT_EQ(run.sequence->length(), 200U);
  }
  faults.arm({});
  const Status done = run.step(tokens[200]);
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_TRUE(std::ranges::equal(run.decoder->logits(), undisturbed.decoder->logits()));
}

Status prefill_with(const LlamaModel& model, Dtype kv_dtype) {
  Decoding run(model, {.policy = "full", .kv_dtype = kv_dtype});
  const auto tokens = tokens_of(cases_of("tiny_logits.json").front());
  return run.prefill(tokens);
}

TEST(Decoder, RefusesKeysAndValuesThatTheirDtypeCannotHold) {
  for (const auto& [tensor, part] : {std::pair{"model.layers.1.self_attn.v_proj.weight", "value"},
                                     std::pair{"model.layers.1.self_attn.k_proj.weight", "key"}}) {
    const LlamaModel model = model_with(tensor, 60000);
    const Status refused = prefill_with(model, Dtype::f16);
    ASSERT_FALSE(refused.has_value()) << part;
    EXPECT_EQ(refused.error().code, Errc::unsupported);
    EXPECT_THAT(std::string(refused.error().message()),
                testing::AllOf(testing::HasSubstr("layer 1"), testing::HasSubstr(part),
                               testing::HasSubstr("65504"), testing::HasSubstr("--kv-dtype bf16")));
    for (const Dtype wide : {Dtype::bf16, Dtype::f32}) {
      EXPECT_TRUE(prefill_with(model, wide).has_value()) << to_string(wide);
    }
  }
}

TEST(Decoder, NamesThePositionWhoseLogitsAreNotFinite) {
  const LlamaModel model = model_with("model.norm.weight", std::numeric_limits<float>::infinity());
  const Status refused = prefill_with(model, Dtype::f32);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  const std::size_t tokens = tokens_of(cases_of("tiny_logits.json").front()).size();
  EXPECT_THAT(std::string(refused.error().message()),
              testing::HasSubstr(fmt::format("position {}: a logit is not finite", tokens - 1)));
}

TEST(Decoder, TakesAStepBackWhoseLogitsAreNotFinite) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  const LlamaModel broken = model_with("model.norm.weight", std::numeric_limits<float>::infinity());
  const auto tokens = tokens_of(cases_of("tiny_logits.json").front());
  const std::size_t prompt = tokens.size() - 1;
  Decoding run(tiny, {.policy = "full"});
  Decoding undisturbed(tiny, {.policy = "full"});
  for (Decoding* const each : {&run, &undisturbed}) {
    const auto first = std::span(tokens).first(prompt);
    ASSERT_TRUE(each->prefill(first).has_value());
  }
  const auto decoder = Decoder::create(broken, *run.runtime, {}).value();
  const Status refused = decoder->step(*run.sequence, tokens[prompt]);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.error().message()),
              testing::HasSubstr(fmt::format("position {}:", prompt)));
  EXPECT_EQ(run.sequence->length(), prompt);
  for (Decoding* const each : {&run, &undisturbed}) {
    ASSERT_TRUE(each->step(tokens[prompt]).has_value());
  }
  EXPECT_TRUE(std::ranges::equal(run.decoder->logits(), undisturbed.decoder->logits()));
}

/// Keeps the keys of all tokens, and passes rows on.
class KeptKeys final : public KvObserver {
 public:
  KeptKeys(const KvShape& shape, KvObserver& next) : shape_(shape), next_(next) {}

  void on_rows(std::size_t layer, TokenRange tokens, const KvTensors& kv) override {
    next_.on_rows(layer, tokens, kv);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
        const std::byte* const row = kv.keys + t * kv.token_stride + head * kv.head_stride;
        std::vector<float>& key = keys_[{layer, head, tokens.begin + t}];
        for (std::size_t i = 0; i < shape_.head_dim; ++i) {
          key.push_back(load_f32(row, shape_.dtype, i));
        }
      }
    }
  }

  /// Weights of a query head's exact attention over `positions` positions.
  [[nodiscard]] std::vector<double> weights(std::size_t layer, std::size_t query_head,
                                            std::span<const float> query,
                                            std::size_t positions) const {
    std::vector<double> result;
    const float* const q = query.data() + query_head * shape_.head_dim;
    for (std::size_t p = 0; p < positions; ++p) {
      const std::vector<float>& key = keys_.at({layer, query_head / shape_.group(), p});
      const double dot = std::inner_product(key.begin(), key.end(), q, 0.0);
      result.push_back(std::exp(dot / std::sqrt(static_cast<double>(shape_.head_dim))));
    }
    const double sum = std::accumulate(result.begin(), result.end(), 0.0);
    for (double& weight : result) weight /= sum;
    return result;
  }

 private:
  KvShape shape_;
  KvObserver& next_;
  std::map<std::array<std::size_t, 3>, std::vector<float>> keys_;
};

TEST(AttentionProbe, MeasuresTheMassOfWhatIsAttended) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  const KvShape shape = tiny.config().kv_shape(Dtype::f32);
  const auto tokens = tokens_of(cases_of("tiny_logits.json").back());
  const std::size_t prompt = std::min<std::size_t>(tokens.size() - 1, 200);
  Decoding run(tiny, {.policy = "streaming", .budget = small_budget});
  AttentionProbe probe(shape, prompt + 1);
  KeptKeys keys(shape, probe);
  run.decoder->observe(&keys);
  ASSERT_TRUE(run.prefill(std::span(tokens).first(prompt)).has_value());
  ASSERT_TRUE(run.step(tokens[prompt]).has_value());
  Serial serial;
  const AttentionQuality quality = probe.measure(*run.sequence, *run.decoder, serial);

  double mass = 0;
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    const StepSelection selection = run.sequence->selection(static_cast<LayerId>(layer));
    for (std::size_t head = 0; head < shape.query_heads; ++head) {
      const auto weights = keys.weights(layer, head, run.decoder->query(layer), prompt + 1);
      for (std::size_t p = 0; p <= prompt; ++p) {
        if (p < selection.sinks.end || p >= selection.window.begin) mass += weights[p];
      }
    }
  }
  mass /= static_cast<double>(shape.layers * shape.query_heads);
  EXPECT_LT(mass, 0.999) << "nothing was left out: the test would prove nothing";
  EXPECT_NEAR(quality.mass(), mass, 1e-6);
  EXPECT_EQ(quality.recall_count, 0U);
}

/// The error of a step's output, by a second run that attends to everything.
TEST(AttentionProbe, MeasuresHowFarOutputsAreFromExactOnes) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  const KvShape shape = tiny.config().kv_shape(Dtype::f32);
  const auto tokens = tokens_of(cases_of("tiny_logits.json").back());
  const std::size_t prompt = std::min<std::size_t>(tokens.size() - 1, 200);
  std::vector<float> outputs[2];
  double errors[2] = {};
  for (const bool all : {false, true}) {
    Decoding run(tiny, {.policy = all ? "full" : "streaming", .budget = small_budget});
    AttentionProbe probe(shape, prompt + 1);
    run.decoder->observe(&probe);
    ASSERT_TRUE(run.prefill(std::span(tokens).first(prompt)).has_value());
    ASSERT_TRUE(run.step(tokens[prompt]).has_value());
    Serial serial;
    const AttentionQuality quality = probe.measure(*run.sequence, *run.decoder, serial);
    ASSERT_EQ(quality.errors.size(), shape.layers);
    errors[all ? 1 : 0] = std::sqrt(quality.errors[0].difference / quality.errors[0].norm);
    const auto output = run.decoder->attention(0);
    outputs[all ? 1 : 0].assign(output.begin(), output.end());
  }
  // Queries of the first layer are the same for any policy.
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < outputs[0].size(); ++i) {
    const double off = outputs[0][i] - outputs[1][i];
    difference += off * off;
    norm += static_cast<double>(outputs[1][i]) * static_cast<double>(outputs[1][i]);
  }
  EXPECT_NEAR(errors[1], 0, 1e-5);
  EXPECT_GT(errors[0], 1e-3) << "nothing was left out: the test would prove nothing";
  EXPECT_NEAR(errors[0], std::sqrt(difference / norm), 1e-4);
}

TEST(AttentionProbe, FindsAllOfTheTruthInTheOraclesSelection) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  const auto tokens = tokens_of(cases_of("tiny_logits.json").back());
  const std::size_t prompt = std::min<std::size_t>(tokens.size() - 1, 200);
  double recall[2] = {};
  double mass[2] = {};
  const char* const policies[] = {"oracle", "pqcache"};
  for (std::size_t i = 0; i < 2; ++i) {
    Decoding run(tiny, {.policy = policies[i], .budget = small_budget});
    AttentionProbe probe(tiny.config().kv_shape(Dtype::f32), prompt + 1);
    run.decoder->observe(&probe);
    ASSERT_TRUE(run.prefill(std::span(tokens).first(prompt)).has_value());
    ASSERT_TRUE(run.step(tokens[prompt]).has_value());
    Serial serial;
    const AttentionQuality quality = probe.measure(*run.sequence, *run.decoder, serial);
    recall[i] = quality.recall();
    mass[i] = quality.mass();
  }
  EXPECT_EQ(recall[0], 1);
  EXPECT_LT(recall[1], 1);
  EXPECT_GT(mass[0], mass[1]);
}

}  // namespace
}  // namespace terrace::engine
