// Against what PyTorch computed (golden/ORIGIN.md), and against a model with one weight changed:
// a tolerance that lets that pass would test nothing.
#include <gmock/gmock.h>

#include "golden.hpp"
#include "terrace/engine/reference_decoder.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

// A half is off by up to 2^-11 of itself. Were a logit of 22, the largest here, off by as much,
// that would be 0.011; the layers may double it. bfloat16 has three bits less.
constexpr double f16_tolerance = 0.02;
constexpr double bf16_tolerance = 8 * f16_tolerance;

/// The largest difference from the golden logits when all tokens are prefilled.
double prefill_distance(const LlamaModel& model, const json& golden, Dtype kv_dtype,
                        std::size_t chunk_rows = 256) {
  Serial serial;
  const auto tokens = tokens_of(golden);
  auto decoder = ReferenceDecoder::create(model,
                                          {.kv_dtype = kv_dtype,
                                           .capacity = tokens.size(),
                                           .chunk_rows = chunk_rows,
                                           .rope_length = tokens.size()},
                                          serial)
                     .value();
  const FloatArray hidden = decoder.prefill(tokens).value();
  std::vector<float> logits(model.config().vocabulary);
  double largest = 0;
  for (std::size_t i = 0; i < golden.at("positions").size(); ++i) {
    const auto position = golden.at("positions").at(i).get<std::size_t>();
    model.logits(hidden.data() + position * model.config().hidden_size, 1, logits.data(),
                 decoder.workspace(), serial);
    largest = std::max(largest, distance(logits, golden.at("logits").at(i)));
  }
  return largest;
}

/// Returns the distance if the tokens up to the golden position in the middle are prefilled, and
/// the later ones are decoded one by one.
double decode_distance(const LlamaModel& model, const json& golden, Dtype kv_dtype) {
  Serial serial;
  const auto tokens = tokens_of(golden);
  const auto positions = golden.at("positions").get<std::vector<std::size_t>>();
  const std::size_t middle = positions.size() / 2;
  auto decoder =
      ReferenceDecoder::create(
          model, {.kv_dtype = kv_dtype, .capacity = tokens.size(), .rope_length = tokens.size()},
          serial)
          .value();
  std::size_t position = positions[middle] + 1;
  EXPECT_TRUE(decoder.prefill(std::span(tokens).first(position)).has_value());
  std::vector<float> logits(model.config().vocabulary);
  double largest = 0;
  for (std::size_t i = middle + 1; i < positions.size(); ++i) {
    for (; position <= positions[i]; ++position) {
      EXPECT_TRUE(decoder.step(tokens[position], logits).has_value());
    }
    largest = std::max(largest, distance(logits, golden.at("logits").at(i)));
  }
  return largest;
}

TEST(GoldenLogits, AreMetByTheBundledModel) {
  const LlamaModel model = LlamaModel::load(TERRACE_TINY_MODEL).value();
  for (const json& golden : cases_of("tiny_logits.json")) {
    EXPECT_LE(prefill_distance(model, golden, Dtype::f32), f32_tolerance);
    EXPECT_LE(decode_distance(model, golden, Dtype::f32), f32_tolerance);
  }
}

TEST(GoldenLogits, AreMetByLlama3ScalingShardsAndAnOwnHead) {
  const LlamaModel model =
      LlamaModel::load(std::string(TERRACE_GOLDEN_FOLDER) + "/llama3_rope_model").value();
  for (const json& golden : cases_of("llama3_rope_logits.json")) {
    EXPECT_LE(prefill_distance(model, golden, Dtype::f32), f32_tolerance);
    EXPECT_LE(decode_distance(model, golden, Dtype::f32), f32_tolerance);
  }
}

TEST(GoldenLogits, AreMetByBiasesAndEveryRopeScaling) {
  for (const json& golden : cases_of("variant_logits.json")) {
    SCOPED_TRACE(golden.at("config").dump());
    const auto model = load_variant(golden);
    ASSERT_TRUE(model.has_value()) << model.error().message();
    EXPECT_TRUE(model->notes().empty());
    EXPECT_LE(prefill_distance(*model, golden, Dtype::f32), f32_tolerance);
    EXPECT_LE(prefill_distance(*model, golden, Dtype::f32, 7), f32_tolerance);
    EXPECT_LE(decode_distance(*model, golden, Dtype::f32), f32_tolerance);
  }
}

TEST(GoldenLogits, AreMetByEveryArchitecture) {
  for (const json& golden : cases_of("architecture_logits.json")) {
    SCOPED_TRACE(golden.at("model"));
    const auto model = load_architecture(golden);
    ASSERT_TRUE(model.has_value()) << model.error().message();
    EXPECT_TRUE(model->notes().empty()) << model->notes().front().text;
    EXPECT_LE(prefill_distance(*model, golden, Dtype::f32), f32_tolerance);
    EXPECT_LE(prefill_distance(*model, golden, Dtype::f32, 7), f32_tolerance);
    EXPECT_LE(decode_distance(*model, golden, Dtype::f32), f32_tolerance);
  }
}

/// A tolerance that let a scaling pass for another would test nothing.
TEST(GoldenLogits, DifferBetweenRopeScalings) {
  const std::vector<json> cases = cases_of("variant_logits.json");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (std::size_t j = 0; j < cases.size(); ++j) {
      json swapped = cases[i];
      swapped["config"] = cases[j].at("config");
      if (swapped == cases[i]) continue;
      SCOPED_TRACE(cases[i].at("config").dump() + " by " + swapped["config"].dump());
      const LlamaModel model = load_variant(swapped).value();
      EXPECT_GT(prefill_distance(model, swapped, Dtype::f32), f32_tolerance);
    }
  }
}

TEST(GoldenLogits, AreMetWithinTheRoundingOfNarrowKeysAndValues) {
  const LlamaModel model = LlamaModel::load(TERRACE_TINY_MODEL).value();
  for (const json& golden : cases_of("tiny_logits.json")) {
    for (const auto& [dtype, tolerance] :
         {std::pair{Dtype::f16, f16_tolerance}, std::pair{Dtype::bf16, bf16_tolerance}}) {
      const double distance = prefill_distance(model, golden, dtype);
      EXPECT_LE(distance, tolerance) << to_string(dtype);
      EXPECT_GT(distance, f32_tolerance) << "were they rounded to " << to_string(dtype) << "?";
      EXPECT_LE(decode_distance(model, golden, dtype), tolerance) << to_string(dtype);
    }
  }
}

TEST(GoldenLogits, AreMissedByAModelWithOneWeightChanged) {
  for (const char* name : {"model.layers.0.self_attn.k_proj.weight",
                           "model.layers.2.mlp.down_proj.weight", "model.norm.weight"}) {
    const TemporaryFolder folder;
    copy_with_changed_weight(folder, name, 2.0F);
    const LlamaModel model = LlamaModel::load(folder.path()).value();
    const json golden = cases_of("tiny_logits.json").back();
    EXPECT_GT(prefill_distance(model, golden, Dtype::f32), f32_tolerance) << name;
    EXPECT_GT(prefill_distance(model, golden, Dtype::f16), f16_tolerance) << name;
  }
}

TEST(ReferenceDecoder, RefusesKeysAndValuesThatTheirDtypeCannotHold) {
  const TemporaryFolder folder;
  copy_with_changed_weights(folder, "model.layers.1.self_attn.v_proj.weight", 60000);
  const LlamaModel model = LlamaModel::load(folder.path()).value();
  Serial serial;
  const auto tokens = tokens_of(cases_of("tiny_logits.json").front());
  const auto prefill = [&](Dtype kv_dtype) {
    return ReferenceDecoder::create(model, {.kv_dtype = kv_dtype, .capacity = tokens.size()},
                                    serial)
        ->prefill(tokens);
  };
  EXPECT_TRUE(prefill(Dtype::bf16).has_value());
  const auto refused = prefill(Dtype::f16);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.error().message()), testing::HasSubstr("layer 1"));
}

}  // namespace
}  // namespace terrace::engine
