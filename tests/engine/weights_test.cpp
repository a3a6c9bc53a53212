#include "terrace/engine/weights.hpp"

#include <gmock/gmock.h>

#include "core/temporary_folder.hpp"
#include "safetensors_writer.hpp"

namespace terrace::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ModelConfig small_config() {
  ModelConfig config;
  config.hidden_size = 8;
  config.layers = 1;
  config.query_heads = 3;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.intermediate_size = 6;
  config.vocabulary = 5;
  return config;
}

/// Tensors of small_config(); the first value of each is its place in this list.
struct NamedShape {
  std::string name;
  std::vector<std::size_t> shape;
};

std::vector<NamedShape> small_tensors() {
  return {{"model.embed_tokens.weight", {5, 8}},
          {"model.norm.weight", {8}},
          {"lm_head.weight", {5, 8}},
          {"model.layers.0.input_layernorm.weight", {8}},
          {"model.layers.0.self_attn.q_proj.weight", {12, 8}},
          {"model.layers.0.self_attn.k_proj.weight", {4, 8}},
          {"model.layers.0.self_attn.v_proj.weight", {4, 8}},
          {"model.layers.0.self_attn.o_proj.weight", {8, 12}},
          {"model.layers.0.post_attention_layernorm.weight", {8}},
          {"model.layers.0.mlp.gate_proj.weight", {6, 8}},
          {"model.layers.0.mlp.up_proj.weight", {6, 8}},
          {"model.layers.0.mlp.down_proj.weight", {8, 6}}};
}

Result<LlamaWeights> load(const SafetensorsWriter& writer, const ModelConfig& config) {
  const TemporaryFolder folder;
  folder.write("model.safetensors", writer.file());
  return LlamaWeights::load(Safetensors::open(folder.path()).value(), config);
}

Result<LlamaWeights> load(const std::vector<NamedShape>& tensors, const ModelConfig& config) {
  SafetensorsWriter writer;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    writer.add(tensors[i].name, tensors[i].shape, static_cast<float>(i));
  }
  return load(writer, config);
}

TEST(LlamaWeights, PutsEveryTensorInItsPlace) {
  const LlamaWeights weights = load(small_tensors(), small_config()).value();
  EXPECT_EQ(weights.embedding()[0], 0.0F);
  EXPECT_EQ(weights.embedding()[1], 0.125F);
  EXPECT_EQ(weights.final_norm()[0], 1.0F);
  EXPECT_EQ(weights.head()[0], 2.0F);
  const LayerWeights& layer = weights.layer(0);
  EXPECT_EQ(layer.input_norm[0], 3.0F);
  EXPECT_EQ(layer.qkv[0], 4.0F);
  EXPECT_EQ(layer.qkv[12 * 8], 5.0F);
  EXPECT_EQ(layer.qkv[16 * 8], 6.0F);
  EXPECT_EQ(layer.attention_out[0], 7.0F);
  EXPECT_EQ(layer.attention_norm[0], 8.0F);
  EXPECT_EQ(layer.gate_up[0], 9.0F);
  EXPECT_EQ(layer.gate_up[6 * 8], 10.0F);
  EXPECT_EQ(layer.down[0], 11.0F);
}

TEST(LlamaWeights, UsesTiedEmbeddingsAsTheHead) {
  ModelConfig config = small_config();
  config.tied_embeddings = true;
  auto tensors = small_tensors();
  std::erase_if(tensors, [](const NamedShape& each) { return each.name == "lm_head.weight"; });
  const LlamaWeights tied = load(tensors, config).value();
  EXPECT_EQ(tied.head(), tied.embedding());
  EXPECT_TRUE(tied.notes().empty());
  const LlamaWeights untied = load(small_tensors(), small_config()).value();
  EXPECT_EQ(untied.parameters(), tied.parameters() + 5 * 8);
}

TEST(LlamaWeights, UsesAHeadThatDiffersThoughTheConfigTiesIt) {
  ModelConfig config = small_config();
  config.tied_embeddings = true;
  const LlamaWeights weights = load(small_tensors(), config).value();
  EXPECT_EQ(weights.head()[0], 2.0F);
  ASSERT_EQ(weights.notes().size(), 1U);
  EXPECT_EQ(weights.notes()[0].level, ModelNote::Level::warning);
  EXPECT_THAT(weights.notes()[0].text,
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("tie_word_embeddings")));
}

TEST(LlamaWeights, TakesAHeadEqualToTheEmbeddingsForTied) {
  ModelConfig config = small_config();
  config.tied_embeddings = true;
  SafetensorsWriter writer;
  const auto tensors = small_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool is_head = tensors[i].name == "lm_head.weight";
    writer.add(tensors[i].name, tensors[i].shape, is_head ? 0 : static_cast<float>(i));
  }
  const LlamaWeights weights = load(writer, config).value();
  EXPECT_EQ(weights.head(), weights.embedding());
  ASSERT_EQ(weights.notes().size(), 1U);
  EXPECT_EQ(weights.notes()[0].level, ModelNote::Level::detail);
}

TEST(LlamaWeights, PutsBiasesAfterTheirMatrices) {
  ModelConfig config = small_config();
  config.qkv_biases = true;
  config.attention_out_bias = true;
  config.mlp_biases = true;
  auto tensors = small_tensors();
  const NamedShape biases[] = {
      {"model.layers.0.self_attn.q_proj.bias", {12}}, {"model.layers.0.self_attn.k_proj.bias", {4}},
      {"model.layers.0.self_attn.v_proj.bias", {4}},  {"model.layers.0.self_attn.o_proj.bias", {8}},
      {"model.layers.0.mlp.gate_proj.bias", {6}},     {"model.layers.0.mlp.up_proj.bias", {6}},
      {"model.layers.0.mlp.down_proj.bias", {8}}};
  tensors.insert(tensors.end(), std::begin(biases), std::end(biases));
  const LlamaWeights weights = load(tensors, config).value();
  const LayerWeights& layer = weights.layer(0);
  EXPECT_EQ(layer.qkv_bias[0], 12.0F);
  EXPECT_EQ(layer.qkv_bias[12], 13.0F);
  EXPECT_EQ(layer.qkv_bias[16], 14.0F);
  EXPECT_EQ(layer.attention_out_bias[0], 15.0F);
  EXPECT_EQ(layer.gate_up_bias[0], 16.0F);
  EXPECT_EQ(layer.gate_up_bias[6], 17.0F);
  EXPECT_EQ(layer.down_bias[0], 18.0F);
  EXPECT_EQ(layer.down[0], 11.0F);
  EXPECT_TRUE(weights.notes().empty());
  tensors.pop_back();
  EXPECT_THAT(std::string(load(tensors, config).error().message()),
              HasSubstr("mlp.down_proj.bias"));
  EXPECT_EQ(load(small_tensors(), small_config())->layer(0).qkv_bias, nullptr);
}

TEST(LlamaWeights, NamesTensorsThatNothingUses) {
  auto tensors = small_tensors();
  tensors.push_back({"model.layers.0.self_attn.q_norm.weight", {4}});
  tensors.push_back({"model.layers.0.self_attn.q_proj.bias", {12}});
  tensors.push_back({"model.layers.9.mlp.up_proj.weight", {6, 8}});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {2}});
  const LlamaWeights weights = load(tensors, small_config()).value();
  ASSERT_EQ(weights.notes().size(), 2U);
  EXPECT_EQ(weights.notes()[0],
            (ModelNote{ModelNote::Level::warning,
                       "tensors that nothing uses: model.layers.0.self_attn.q_norm.weight, "
                       "model.layers.0.self_attn.q_proj.bias, model.layers.9.mlp.up_proj.weight"}));
  EXPECT_EQ(weights.notes()[1].level, ModelNote::Level::detail);
  EXPECT_THAT(weights.notes()[1].text, HasSubstr("rotary_emb.inv_freq"));
  for (int i = 0; i < 20; ++i) tensors.push_back({fmt::format("z{}", i), {1}});
  EXPECT_THAT(load(tensors, small_config())->notes()[0].text, HasSubstr(" and 15 more"));
}

TEST(LlamaWeights, TakesForeignElementTypesWhereNothingNeedsThem) {
  SafetensorsWriter writer;
  for (const NamedShape& each : small_tensors()) writer.add(each.name, each.shape);
  writer.add_raw("model.layers.0.self_attn.rotary_emb.inv_freq", "I64", {2}, std::string(16, 'x'));
  const LlamaWeights weights = load(writer, small_config()).value();
  ASSERT_EQ(weights.notes().size(), 1U);
  EXPECT_EQ(weights.notes()[0].level, ModelNote::Level::detail);

  SafetensorsWriter narrow;
  for (const NamedShape& each : small_tensors()) {
    if (each.name != "model.norm.weight") narrow.add(each.name, each.shape);
  }
  narrow.add_raw("model.norm.weight", "F8_E4M3", {8}, std::string(8, 'x'));
  const auto refused = load(narrow, small_config());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_THAT(std::string(refused.error().message()),
              AllOf(HasSubstr("model.norm.weight is F8_E4M3"), HasSubstr("F32, F16 and BF16")));
}

TEST(LlamaWeights, NamesAMissingTensor) {
  for (std::size_t i = 0; i < small_tensors().size(); ++i) {
    auto tensors = small_tensors();
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    const auto weights = load(tensors, small_config());
    ASSERT_FALSE(weights.has_value()) << small_tensors()[i].name;
    EXPECT_THAT(std::string(weights.error().message()), HasSubstr(small_tensors()[i].name));
  }
}

TEST(LlamaWeights, NamesBothShapesWhereTheyDiffer) {
  for (std::size_t i = 0; i < small_tensors().size(); ++i) {
    auto tensors = small_tensors();
    tensors[i].shape.push_back(1);
    const auto weights = load(tensors, small_config());
    ASSERT_FALSE(weights.has_value()) << tensors[i].name;
    EXPECT_EQ(weights.error().code, Errc::invalid_argument);
    EXPECT_THAT(
        std::string(weights.error().message()),
        AllOf(HasSubstr(tensors[i].name), HasSubstr(fmt::format("[{}", tensors[i].shape[0])),
              HasSubstr(", 1]"), HasSubstr("asks for")));
  }
}

TEST(LlamaWeights, BelievesTheFileBeforeItAllocates) {
  ModelConfig config = small_config();
  config.vocabulary = std::size_t{1} << 40;  // terabytes, had it been believed
  EXPECT_EQ(load(small_tensors(), config).error().code, Errc::invalid_argument);
}

}  // namespace
}  // namespace terrace::engine
