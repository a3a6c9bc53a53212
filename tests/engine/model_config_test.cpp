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
  EXPECT_EQ(config.rope_scaling, RopeScaling());
  EXPECT_THAT(read_end_tokens(TERRACE_TINY_MODEL, config.vocabulary).value(),
              testing::ElementsAre(TokenId{0}));
  EXPECT_TRUE(config.notes.empty());
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
      RopeScaling(Llama3RopeScaling{
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
      {"architectures", {"MixtralForCausalLM"}},
      {"hidden_act", "gelu"},
      {"quantization_config", {{"bits", 4}}},
      {"rope_scaling", {{"type", "proportional"}}},
      {"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 0.5}}},
      {"partial_rotary_factor", 0.5},
      {"sliding_window", 256},
      {"layer_types", {"full_attention", "sliding_attention"}},
      {"attn_logit_softcapping", 50.0},
      {"residual_multiplier", 0.22},
      {"rope_interleaved", true},
      {"num_local_experts", 8},
  };
  for (const auto& [key, value] : unsupported) {
    const auto config = read_with(key, value);
    ASSERT_FALSE(config.has_value()) << key;
    EXPECT_EQ(config.error().code, Errc::unsupported) << key;
    EXPECT_THAT(std::string(config.error().message()), HasSubstr(key));
  }
}

TEST(ModelConfig, TakesForeignKeysThatAskForNothing) {
  const std::pair<const char*, json> neutral[] = {
      {"partial_rotary_factor", 1.0},
      {"sliding_window", nullptr},
      {"sliding_window", 512},
      {"layer_types", {"full_attention", "full_attention"}},
      {"attn_logit_softcapping", nullptr},
      {"residual_multiplier", 1.0},
      {"rope_interleaved", false},
      {"num_local_experts", 1},
  };
  for (const auto& [key, value] : neutral) {
    const auto config = read_with(key, value);
    ASSERT_TRUE(config.has_value()) << key << " " << config.error().message();
    EXPECT_TRUE(config->notes.empty()) << key;
  }
  json config = plain_config();
  config["sliding_window"] = 64;
  config["use_sliding_window"] = false;
  EXPECT_TRUE(read(config.dump()).has_value());
}

/// An architecture's config with more positions than windows have by default.
json long_config(const char* architecture) {
  json config = plain_config();
  config["architectures"] = json::array({architecture});
  config["num_key_value_heads"] = 2;
  config["max_position_embeddings"] = 8192;
  return config;
}

TEST(ModelConfig, TakesAWindowThatMistralHasByDefaultForOne) {
  json config = long_config("MistralForCausalLM");
  for (const bool with_switch : {false, true}) {
    if (with_switch) config["use_sliding_window"] = false;  // Mistral has no such key
    const auto refused = read(config.dump());
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::unsupported);
    EXPECT_THAT(std::string(refused.error().message()),
                HasSubstr("sliding_window is missing, and is 4096 then for MistralForCausalLM"));
  }
  config["sliding_window"] = nullptr;
  EXPECT_TRUE(read(config.dump()).has_value());
  config.erase("sliding_window");
  config["max_position_embeddings"] = 4096;
  EXPECT_TRUE(read(config.dump()).has_value());
  config.erase("max_position_embeddings");
  EXPECT_FALSE(read(config.dump()).has_value());
}

TEST(ModelConfig, TakesWindowsOfQwenForOffWhereNothingSaysThatTheyAreOn) {
  for (const char* const architecture : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    json config = long_config(architecture);
    EXPECT_TRUE(read(config.dump()).has_value());
    config["sliding_window"] = 4096;
    EXPECT_TRUE(read(config.dump()).has_value());
    config["use_sliding_window"] = true;
    EXPECT_THAT(std::string(read(config.dump()).error().message()),
                HasSubstr("sliding_window is 4096, which is not computed"));
    config.erase("sliding_window");
    EXPECT_THAT(std::string(read(config.dump()).error().message()),
                HasSubstr("sliding_window is missing"));
  }
}

TEST(ModelConfig, NamesKeysThatHaveNoEffectOnce) {
  json config = plain_config();
  config["attention_dropout"] = 0.1;
  config["pretraining_tp"] = 2;
  config["future_gate"] = true;
  config["odd\nname"] = 1;
  config["missing_says_nothing"] = nullptr;
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}, {"beta_fast", 16}};
  const ModelConfig read_config = read(config.dump()).value();
  ASSERT_EQ(read_config.notes.size(), 1U);
  EXPECT_EQ(read_config.notes[0].level, ModelNote::Level::warning);
  EXPECT_THAT(read_config.notes[0].text,
              testing::EndsWith("config.json: keys that have no effect: rope_scaling.beta_fast, "
                                "future_gate, \"odd\\nname\""));
}

TEST(ModelConfig, ReadsBiases) {
  json config = plain_config();
  config["attention_bias"] = true;
  EXPECT_TRUE(read(config.dump())->qkv_biases);
  EXPECT_TRUE(read(config.dump())->attention_out_bias);
  EXPECT_FALSE(read(config.dump())->mlp_biases);
  config["mlp_bias"] = true;
  EXPECT_TRUE(read(config.dump())->mlp_biases);
}

TEST(ModelConfig, TakesWhatEachArchitectureTakesWhereItsConfigSaysNothing) {
  const auto plain = [](const char* architecture) {
    json config = plain_config();
    config["architectures"] = json::array({architecture});
    if (std::string(architecture) != "GlmForCausalLM") config["num_key_value_heads"] = 2;
    return read(config.dump()).value();
  };
  EXPECT_FALSE(plain("MistralForCausalLM").qkv_biases);
  EXPECT_TRUE(plain("Qwen2ForCausalLM").qkv_biases);
  EXPECT_FALSE(plain("Qwen2ForCausalLM").attention_out_bias);
  EXPECT_EQ(plain("Qwen3ForCausalLM").head_dim, 128U);
  EXPECT_TRUE(plain("Qwen3ForCausalLM").architecture.norms_heads);
  EXPECT_EQ(plain("Phi3ForCausalLM").rms_norm_epsilon, 1e-5);
  const ModelConfig glm = plain("GlmForCausalLM");
  EXPECT_EQ(glm.head_dim, 128U);
  EXPECT_EQ(glm.rotated_dims(), 64U);
  EXPECT_EQ(glm.kv_heads, 2U);
  EXPECT_TRUE(glm.qkv_biases);
  EXPECT_FALSE(glm.attention_out_bias);
}

TEST(ModelConfig, RotatesAnEvenPartOfAHead) {
  json config = plain_config();
  config["architectures"] = json::array({"Phi3ForCausalLM"});
  config["partial_rotary_factor"] = 0.25;
  EXPECT_EQ(read(config.dump())->rotated_dims(), 4U);
  config["partial_rotary_factor"] = 0.45;
  EXPECT_THAT(std::string(read(config.dump()).error().message()),
              testing::HasSubstr("of a head of 16, 7 elements are rotated"));
}

TEST(ModelConfig, ReadsTheShapeOfAnyArchitecture) {
  json config = plain_config();
  config["architectures"] = json::array({"MixtralForCausalLM"});
  config["num_local_experts"] = 8;
  config["num_key_value_heads"] = 2;
  EXPECT_FALSE(read(config.dump()).has_value());
  const TemporaryFolder folder;
  folder.write("config.json", config.dump());
  const KvShape shape = read_kv_shape(folder.path(), Dtype::bf16).value();
  EXPECT_EQ(
      shape,
      (KvShape{
          .layers = 2, .query_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = Dtype::bf16}));
  folder.write("config.json", R"({"num_hidden_layers": 2})");
  EXPECT_THAT(std::string(read_kv_shape(folder.path(), Dtype::f16).error().message()),
              testing::HasSubstr("num_attention_heads"));
}

TEST(ModelConfig, TakesEndTokensFromTheGenerationConfigFirst) {
  const auto end_tokens = [](const json& in_config, const json& in_generation) {
    json config = plain_config();
    config["eos_token_id"] = in_config;
    const TemporaryFolder folder;
    folder.write("config.json", config.dump());
    if (!in_generation.is_discarded()) {
      folder.write("generation_config.json", json{{"eos_token_id", in_generation}}.dump());
    }
    EXPECT_TRUE(read_model_config(folder.path()).has_value()) << "only who generates needs them";
    return read_end_tokens(folder.path(), 256);
  };
  const json no_file(json::value_t::discarded);
  const auto ids = [](std::initializer_list<std::uint32_t> numbers) {
    std::vector<TokenId> tokens;
    for (const std::uint32_t number : numbers) tokens.push_back(TokenId{number});
    return tokens;
  };
  EXPECT_EQ(end_tokens(nullptr, no_file), ids({}));
  EXPECT_EQ(end_tokens(2, no_file), ids({2}));
  EXPECT_EQ(end_tokens({2, 7}, no_file), ids({2, 7}));
  EXPECT_EQ(end_tokens({-1, 256, 7}, no_file), ids({7}));
  EXPECT_EQ(end_tokens(2, {3, 4}), ids({3, 4}));
  EXPECT_EQ(end_tokens(2, nullptr), ids({2}));
  const auto wrong = end_tokens(2, "</s>");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_THAT(std::string(wrong.error().message()),
              AllOf(HasSubstr("generation_config.json"), HasSubstr("eos_token_id")));
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

TEST(ModelConfig, RefusesFlawsThatItsJsonParserOverlooks) {
  const std::string text = plain_config().dump();
  ASSERT_TRUE(read(text + "\n").has_value());
  using namespace std::string_literals;
  for (const std::string& wrong : {text + "\0"s, text + "\0 more"s, "\xef\xbb\xbf" + text}) {
    const auto config = read(wrong);
    ASSERT_FALSE(config.has_value()) << wrong;
    EXPECT_EQ(config.error().code, Errc::corrupt);
    EXPECT_THAT(std::string(config.error().message()), HasSubstr("config.json: is no JSON: "));
  }
}

TEST(ModelConfig, RefusesAFileThatIsNoConfigForItsSize) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  std::filesystem::resize_file(folder / "config.json", std::uintmax_t{1} << 30);
  EXPECT_THAT(std::string(read_model_config(folder.path()).error().message()),
              HasSubstr("config.json: is larger than 100000000 bytes"));
}

TEST(ModelConfig, SaysWhatAFolderLacks) {
  const auto nowhere = read_model_config("/nowhere");
  EXPECT_EQ(nowhere.error().code, Errc::io_error);
  EXPECT_THAT(std::string(nowhere.error().message()),
              HasSubstr("/nowhere: there is no such folder; name the folder"));
  const TemporaryFolder folder;
  EXPECT_THAT(std::string(read_kv_shape(folder.path(), Dtype::f16).error().message()),
              HasSubstr("holds no config.json; name the folder of a Hugging Face model"));
}

}  // namespace
}  // namespace terrace::engine
