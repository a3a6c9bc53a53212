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
  const char* name;
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

Result<LlamaWeights> load(const std::vector<NamedShape>& tensors, const ModelConfig& config) {
  SafetensorsWriter writer;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    writer.add(tensors[i].name, tensors[i].shape, static_cast<float>(i));
  }
  const TemporaryFolder folder;
  folder.write("model.safetensors", writer.file());
  return LlamaWeights::load(Safetensors::open(folder.path()).value(), config);
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
  const LlamaWeights tied = load(small_tensors(), config).value();
  EXPECT_EQ(tied.head(), tied.embedding());
  const LlamaWeights untied = load(small_tensors(), small_config()).value();
  EXPECT_EQ(untied.parameters(), tied.parameters() + 5 * 8);
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
