// RoPE scalings as config.json spells them. rope_test.cpp tests their numbers, and
// golden_logits_test.cpp that transformers computes the same.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/temporary_folder.hpp"
#include "terrace/engine/model_config.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// A model of head_dim 8, made for 512 positions.
Result<ModelConfig> read_scaling(const json& scaling, const json& more = json::object()) {
  json config{{"architectures", {"LlamaForCausalLM"}},
              {"hidden_size", 32},
              {"num_hidden_layers", 2},
              {"num_attention_heads", 4},
              {"intermediate_size", 96},
              {"vocab_size", 256},
              {"max_position_embeddings", 512}};
  config.update(more);
  config["rope_scaling"] = scaling;
  const TemporaryFolder folder;
  folder.write("config.json", config.dump());
  return read_model_config(folder.path());
}

std::string error_of(const json& scaling, const json& more = json::object()) {
  const auto config = read_scaling(scaling, more);
  return config ? "" : std::string(config.error().message());
}

TEST(RopeConfig, ReadsKindsThatNeedNothingButAFactor) {
  EXPECT_EQ(read_scaling({{"type", "linear"}, {"factor", 4}})->rope_scaling,
            RopeScaling(LinearRopeScaling{.factor = 4}));
  EXPECT_EQ(read_scaling({{"rope_type", "dynamic"}, {"factor", 2.5}})->rope_scaling,
            RopeScaling(DynamicRopeScaling{.factor = 2.5}));
  for (const char* const type : {"linear", "dynamic", "llama3"}) {
    EXPECT_THAT(error_of({{"rope_type", type}}),
                AllOf(HasSubstr("rope_scaling"), HasSubstr("factor is missing")));
  }
  EXPECT_THAT(error_of({{"rope_type", "linear"}, {"factor", 0.5}}), HasSubstr("factor is 0.5"));
  EXPECT_THAT(error_of({{"rope_type", "dynamic"}, {"factor", 2}}, {{"head_dim", 2}}),
              HasSubstr("head_dim above 2"));
}

TEST(RopeConfig, ReadsYarnWithItsDefaults) {
  json scaling{{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 128}};
  EXPECT_EQ(
      read_scaling(scaling)->rope_scaling,
      RopeScaling(YarnRopeScaling{
          .factor = 4, .attention_factor = 0.1 * std::log(4.0) + 1, .original_positions = 128}));
  scaling["mscale"] = 0.5;
  scaling["mscale_all_dim"] = 2;
  scaling["beta_fast"] = 16;
  scaling["beta_slow"] = nullptr;
  scaling["truncate"] = false;
  EXPECT_EQ(read_scaling(scaling)->rope_scaling,
            RopeScaling(YarnRopeScaling{
                .factor = 4,
                .attention_factor = (0.05 * std::log(4.0) + 1) / (0.2 * std::log(4.0) + 1),
                .beta_fast = 16,
                .truncate = false,
                .original_positions = 128}));
  scaling["attention_factor"] = 1.5;
  EXPECT_EQ(std::get<YarnRopeScaling>(read_scaling(scaling)->rope_scaling).attention_factor, 1.5);
}

TEST(RopeConfig, TakesTheStretchOfTheContextWhereYarnHasNoFactor) {
  const auto yarn = [](const json& scaling, const json& more = json::object()) {
    return std::get<YarnRopeScaling>(read_scaling(scaling, more)->rope_scaling);
  };
  const json scaling{{"rope_type", "yarn"}, {"original_max_position_embeddings", 128}};
  EXPECT_EQ(yarn(scaling).factor, 4);
  const json beside{{"original_max_position_embeddings", 256}};
  EXPECT_EQ(yarn(scaling, beside).factor, 2) << "the config's own key wins";
  EXPECT_EQ(yarn(scaling, beside).original_positions, 256U);
  EXPECT_EQ(yarn({{"rope_type", "yarn"}}).original_positions, 512U);
}

TEST(RopeConfig, ReadsLongropeWithADivisorForEachPair) {
  json scaling{{"rope_type", "longrope"},
               {"short_factor", {1, 1.5, 2, 2.5}},
               {"long_factor", {2, 4, 8, 16}}};
  const json more{{"original_max_position_embeddings", 64}};
  EXPECT_EQ(
      read_scaling(scaling, more)->rope_scaling,
      RopeScaling(LongRopeScaling{.short_factors = {1, 1.5, 2, 2.5},
                                  .long_factors = {2, 4, 8, 16},
                                  .attention_factor = std::sqrt(1 + std::log(8.0) / std::log(64.0)),
                                  .original_positions = 64}));
  scaling["long_factor"] = {2, 4, 8};
  EXPECT_THAT(error_of(scaling, more), AllOf(HasSubstr("long_factor"), HasSubstr("4 numbers")));
  scaling["long_factor"] = {2, 4, 8, 0};
  EXPECT_THAT(error_of(scaling, more), HasSubstr("long_factor"));
}

TEST(RopeConfig, TakesOlderNamesOfLongropeInPhi3Alone) {
  json phi3{{"architectures", {"Phi3ForCausalLM"}}, {"max_position_embeddings", 16384}};
  const json factors{{"short_factor", {1, 1.5, 2, 2.5}}, {"long_factor", {2, 4, 8, 16}}};
  const auto named = [&](const char* name) {
    json scaling = factors;
    scaling["type"] = name;
    scaling["original_max_position_embeddings"] = 64;  // Phi-3 has 4,096 by default, which wins
    return scaling;
  };
  const RopeScaling expected = LongRopeScaling{.short_factors = {1, 1.5, 2, 2.5},
                                               .long_factors = {2, 4, 8, 16},
                                               .attention_factor = std::sqrt(1 + 2.0 / 12),
                                               .original_positions = 4096};
  for (const char* const name : {"longrope", "su", "yarn"}) {
    const ModelConfig config = read_scaling(named(name), phi3).value();
    EXPECT_EQ(config.rope_scaling, expected) << name;
    EXPECT_TRUE(config.notes.empty()) << name;
  }
  EXPECT_THAT(error_of(named("su")), HasSubstr("\"su\""));
}

TEST(RopeConfig, RefusesIncompleteLlama3Scaling) {
  json scaling{{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 4.0}};
  EXPECT_THAT(error_of(scaling),
              AllOf(HasSubstr("rope_scaling"), HasSubstr("high_freq_factor is missing")));
  scaling["high_freq_factor"] = 4.0;
  scaling["original_max_position_embeddings"] = 128;
  EXPECT_THAT(error_of(scaling), HasSubstr("must be above"));
}

TEST(RopeConfig, LooksAtTheOlderSpellingFirst) {
  const json newer{{"rope_parameters", {{"rope_type", "linear"}, {"factor", 8}}}};
  const ModelConfig both = read_scaling({{"type", "linear"}, {"factor", 2}}, newer).value();
  EXPECT_EQ(both.rope_scaling, RopeScaling(LinearRopeScaling{.factor = 2}));
  ASSERT_EQ(both.notes.size(), 1U);
  EXPECT_THAT(both.notes[0].text, HasSubstr("rope_parameters"));
  EXPECT_EQ(read_scaling(nullptr, newer)->rope_scaling,
            RopeScaling(LinearRopeScaling{.factor = 8}));
}

}  // namespace
}  // namespace terrace::engine
