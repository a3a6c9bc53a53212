#include "terrace/engine/weights.hpp"

#include <fmt/ranges.h>

#include <string>

#include "terrace/engine/vector_math.hpp"

namespace terrace::engine {
namespace {

/// A tensor of the model: its name in the file and the shape the config gives it.
struct Piece {
  std::string name;
  std::vector<std::size_t> shape;

  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t product = 1;
    for (const std::size_t extent : shape) product *= extent;
    return product;
  }
};

/// Lists the tensors in the order in which they lie in memory. take_layer walks the same order.
std::vector<Piece> pieces_of(const ModelConfig& config) {
  const std::size_t hidden = config.hidden_size;
  const std::size_t queries = config.query_size();
  const std::size_t keys = config.kv_size();
  const std::size_t inner = config.intermediate_size;
  std::vector<Piece> pieces{{"model.embed_tokens.weight", {config.vocabulary, hidden}},
                            {"model.norm.weight", {hidden}}};
  if (!config.tied_embeddings) pieces.push_back({"lm_head.weight", {config.vocabulary, hidden}});
  for (std::size_t i = 0; i < config.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    pieces.push_back({layer + "input_layernorm.weight", {hidden}});
    pieces.push_back({layer + "self_attn.q_proj.weight", {queries, hidden}});
    pieces.push_back({layer + "self_attn.k_proj.weight", {keys, hidden}});
    pieces.push_back({layer + "self_attn.v_proj.weight", {keys, hidden}});
    pieces.push_back({layer + "self_attn.o_proj.weight", {hidden, queries}});
    pieces.push_back({layer + "post_attention_layernorm.weight", {hidden}});
    pieces.push_back({layer + "mlp.gate_proj.weight", {inner, hidden}});
    pieces.push_back({layer + "mlp.up_proj.weight", {inner, hidden}});
    pieces.push_back({layer + "mlp.down_proj.weight", {hidden, inner}});
  }
  return pieces;
}

Status check_piece(const Piece& piece, const Safetensors& tensors) {
  TERRACE_ASSIGN(const Tensor tensor, tensors.find(piece.name));
  if (tensor.shape != piece.shape) {
    return fail(Errc::invalid_argument, "tensor {} has shape {}, config.json asks for {}",
                piece.name, tensor.shape, piece.shape);
  }
  return {};
}

/// Hands out consecutive stretches of one array.
class Cursor {
 public:
  explicit Cursor(const float* position) : position_(position) {}

  const float* take(std::size_t count) noexcept {
    const float* start = position_;
    position_ += count;
    return start;
  }

 private:
  const float* position_;
};

LayerWeights take_layer(Cursor& cursor, const ModelConfig& config) {
  if (!tensor.dtype) {
    return fail(Errc::unsupported, "tensor {} is {}; F32, F16 and BF16 are supported", piece.name,
                tensor.element_type);
  }
  const std::size_t hidden = config.hidden_size;
  LayerWeights layer;
  layer.input_norm = cursor.take(hidden);
  layer.qkv = cursor.take((config.query_size() + 2 * config.kv_size()) * hidden);
  layer.attention_out = cursor.take(hidden * config.query_size());
  layer.attention_norm = cursor.take(hidden);
  layer.gate_up = cursor.take(2 * config.intermediate_size * hidden);
  layer.down = cursor.take(hidden * config.intermediate_size);
  return layer;
}

}  // namespace

std::size_t parameter_count(const ModelConfig& config) {
  std::size_t total = 0;
  for (const Piece& piece : pieces_of(config)) total += piece.size();
  return total;
}

Result<LlamaWeights> LlamaWeights::load(const Safetensors& tensors, const ModelConfig& config) {
  const std::vector<Piece> pieces = pieces_of(config);
  for (const Piece& piece : pieces) TERRACE_TRY(check_piece(piece, tensors));
  LlamaWeights weights;
  TERRACE_ASSIGN(weights.values_, FloatArray::create(parameter_count(config)));
  float* target = weights.values_.data();
  for (const Piece& piece : pieces) {
    TERRACE_ASSIGN(const Tensor tensor, tensors.find(piece.name));
    convert_to_f32(tensor.bytes.data(), *tensor.dtype, piece.size(), target);
    target += piece.size();
  }

  Cursor cursor(weights.values_.data());
  weights.embedding_ = cursor.take(config.vocabulary * config.hidden_size);
  weights.final_norm_ = cursor.take(config.hidden_size);
  weights.head_ = config.tied_embeddings ? weights.embedding_
                                         : cursor.take(config.vocabulary * config.hidden_size);
  for (std::size_t i = 0; i < config.layers; ++i) {
    weights.layers_.push_back(take_layer(cursor, config));
  }
  return weights;
}

}  // namespace terrace::engine
