#include "terrace/engine/model_config.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/temporary_folder.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

json plain_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 96},
          {"vocab_size", 256},
          {"max_position_embeddings", 512}};
}

Result<ModelConfig> read(const std::string& text) {
  const TemporaryFolder folder;
  folder.write("config.json", text);
  return read_model_config(folder.path());
}

Result<ModelConfig> read_with(const char* key, const json& value) {
  json config = plain_config();
  config[key] = value;
  return read(config.dump());
}

TEST(ModelConfig, ReadsTheBundledModel) {
  const ModelConfig config = read_model_config(TERRACE_TINY_MODEL).value();
  EXPECT_EQ(config.hidden_size, 256U);
  EXPECT_EQ(config.layers, 4U);
  EXPECT_EQ(config.query_heads, 4U);
  EXPECT_EQ(config.kv_heads, 2U);
  EXPECT_EQ(config.head_dim, 64U);
  EXPECT_EQ(config.intermediate_size, 704U);
  EXPECT_EQ(config.vocabulary, 256U);
  EXPECT_EQ(config.positions_max, 8192U);
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_FALSE(config.rope_scaling.has_value());
  EXPECT_TRUE(config.kv_shape(Dtype::f16).validate().has_value());
}

TEST(ModelConfig, FillsInHuggingFaceDefaults) {
  const ModelConfig config = read(plain_config().dump()).value();
  EXPECT_EQ(config.kv_heads, 4U);
  EXPECT_EQ(config.head_dim, 16U);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.rms_norm_epsilon, 1e-6);
  EXPECT_FALSE(config.tied_embeddings);
}

TEST(ModelConfig, ReadsLlama3ScalingInBothSpellings) {
  const json scaling{{"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 128}};
  json older = plain_config();
  older["rope_theta"] = 5e5;
  older["rope_scaling"] = scaling;
  older["torch_dtype"] = "bfloat16";
  json newer = plain_config();
  newer["rope_parameters"] = scaling;
  newer["rope_parameters"]["rope_theta"] = 5e5;
  newer["rope_parameters"]["rope_type"] = "llama3";
  newer["dtype"] = "bfloat16";
  const ModelConfig expected = read(newer.dump()).value();
  EXPECT_EQ(expected.rope_theta, 5e5);
  EXPECT_EQ(
      expected.rope_scaling,
      (Llama3RopeScaling{
          .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_positions = 128}));
  for (const char* key : {"type", "rope_type"}) {
    json spelled = older;
    spelled["rope_scaling"][key] = "llama3";
    EXPECT_EQ(read(spelled.dump()).value(), expected) << key;
  }
}

TEST(ModelConfig, NamesFileAndKeyOfAValueThatCannotBe) {
  const std::pair<const char*, json> wrong[] = {
      {"hidden_size", 1'000'000'000},
      {"hidden_size", -64},
      {"hidden_size", 64.5},
      {"hidden_size", "64"},
      {"hidden_size", {{"a", "b\nc"}}},
      {"num_hidden_layers", 0},
      {"num_hidden_layers", nullptr},
      {"num_attention_heads", 5},
      {"num_key_value_heads", 3},
      {"head_dim", 15},
      {"head_dim", 2048},
      {"intermediate_size", true},
      {"vocab_size", 18446744073709551615ULL},
      {"max_position_embeddings", 0},
      {"rms_norm_eps", -1},
      {"rms_norm_eps", "small"},
      {"rope_theta", 0},
      {"rope_scaling", 2},
      {"tie_word_embeddings", "yes"},
  };
  for (const auto& [key, value] : wrong) {
    const auto config = read_with(key, value);
    ASSERT_FALSE(config.has_value()) << key << " " << value;
    EXPECT_EQ(config.error().code, Errc::invalid_argument) << key << " " << value;
    EXPECT_THAT(std::string(config.error().message()),
                AllOf(HasSubstr("config.json"), HasSubstr(key), Not(HasSubstr("\n"))));
  }
}

TEST(ModelConfig, NamesAMissingKey) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "vocab_size"}) {
    json config = plain_config();
    config.erase(key);
    EXPECT_THAT(std::string(read(config.dump()).error().message()),
                HasSubstr(std::string(key) + " is missing"));
  }
}

TEST(ModelConfig, SaysWhatIsNotSupported) {
  const std::pair<const char*, json> unsupported[] = {
      {"architectures", {"MistralForCausalLM"}},
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"quantization_config", {{"bits", 4}}},
      {"rope_scaling", {{"type", "yarn"}}},
  };
  for (const auto& [key, value] : unsupported) {
    const auto config = read_with(key, value);
    ASSERT_FALSE(config.has_value()) << key;
    EXPECT_EQ(config.error().code, Errc::unsupported) << key;
    EXPECT_THAT(std::string(config.error().message()), HasSubstr(key));
  }
}

TEST(ModelConfig, RefusesIncompleteLlama3Scaling) {
  json scaling{{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 4.0}};
  EXPECT_THAT(std::string(read_with("rope_scaling", scaling).error().message()),
              AllOf(HasSubstr("rope_scaling"), HasSubstr("high_freq_factor is missing")));
  scaling["high_freq_factor"] = 4.0;
  scaling["original_max_position_embeddings"] = 128;
  EXPECT_THAT(std::string(read_with("rope_scaling", scaling).error().message()),
              HasSubstr("must be above"));
}

TEST(ModelConfig, RefusesWhatIsNoJsonObject) {
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100000; ++i) deep += '[';
  for (const std::string& text : {std::string("{"), std::string("[1]"), std::string("\0\xff", 2),
                                  std::string(R"({"hidden_size": 1, "hidden_size": 2})"), deep,
                                  std::string(R"({"hidden_size": NaN})")}) {
    const auto config = read(text);
    ASSERT_FALSE(config.has_value()) << text.substr(0, 40);
    EXPECT_EQ(config.error().code, Errc::corrupt) << text.substr(0, 40);
  }
  EXPECT_EQ(read("").error().code, Errc::corrupt);
}

TEST(ModelConfig, NamesAMissingFile) {
  const auto config = read_model_config("/nowhere");
  EXPECT_EQ(config.error().code, Errc::io_error);
  EXPECT_THAT(std::string(config.error().message()), HasSubstr("/nowhere/config.json"));
}

}  // namespace
}  // namespace terrace::engine
