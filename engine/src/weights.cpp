#include "terrace/engine/weights.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_set>

#include "shown_list.hpp"
#include "terrace/engine/vector_math.hpp"

namespace terrace::engine {
namespace {

constexpr std::string_view embedding_name = "model.embed_tokens.weight";
constexpr std::string_view head_name = "lm_head.weight";

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
  const Architecture& kind = config.architecture;
  std::vector<Piece> pieces{{std::string(embedding_name), {config.vocabulary, hidden}},
                            {"model.norm.weight", {hidden}}};
  if (!config.tied_embeddings)
    pieces.push_back({std::string(head_name), {config.vocabulary, hidden}});
  for (std::size_t i = 0; i < config.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const auto add_bias = [&](bool there, const char* name, std::size_t size) {
      if (there) pieces.push_back({layer + name + ".bias", {size}});
    };
    pieces.push_back({layer + "input_layernorm.weight", {hidden}});
    if (kind.fuses_qkv) {
      pieces.push_back({layer + "self_attn.qkv_proj.weight", {queries + 2 * keys, hidden}});
    } else {
      pieces.push_back({layer + "self_attn.q_proj.weight", {queries, hidden}});
      pieces.push_back({layer + "self_attn.k_proj.weight", {keys, hidden}});
      pieces.push_back({layer + "self_attn.v_proj.weight", {keys, hidden}});
    }
    add_bias(config.qkv_biases, "self_attn.q_proj", queries);
    add_bias(config.qkv_biases, "self_attn.k_proj", keys);
    add_bias(config.qkv_biases, "self_attn.v_proj", keys);
    if (kind.norms_heads) {
      pieces.push_back({layer + "self_attn.q_norm.weight", {config.head_dim}});
      pieces.push_back({layer + "self_attn.k_norm.weight", {config.head_dim}});
    }
    pieces.push_back({layer + "self_attn.o_proj.weight", {hidden, queries}});
    add_bias(config.attention_out_bias, "self_attn.o_proj", hidden);
    pieces.push_back({layer + "post_attention_layernorm.weight", {hidden}});
    if (kind.fuses_gate_up) {
      pieces.push_back({layer + "mlp.gate_up_proj.weight", {2 * inner, hidden}});
    } else {
      pieces.push_back({layer + "mlp.gate_proj.weight", {inner, hidden}});
      pieces.push_back({layer + "mlp.up_proj.weight", {inner, hidden}});
    }
    add_bias(config.mlp_biases, "mlp.gate_proj", inner);
    add_bias(config.mlp_biases, "mlp.up_proj", inner);
    pieces.push_back({layer + "mlp.down_proj.weight", {hidden, inner}});
    add_bias(config.mlp_biases, "mlp.down_proj", hidden);
  }
  return pieces;
}

Status check_piece(const Piece& piece, const Safetensors& tensors) {
  TERRACE_ASSIGN(const Tensor tensor, tensors.find(piece.name));
  if (tensor.shape != piece.shape) {
    return fail(Errc::invalid_argument, "tensor {} has shape {}, config.json asks for {}",
                piece.name, tensor.shape, piece.shape);
  }
  if (!tensor.dtype) {
    return fail(Errc::unsupported, "tensor {} is {}; F32, F16 and BF16 are supported", piece.name,
                tensor.element_type);
  }
  return {};
}

/// True where the file has an output head, and it is not the embeddings once more.
bool has_own_head(const Safetensors& tensors) {
  const auto head = tensors.tensors().find(head_name);
  const auto embedding = tensors.tensors().find(embedding_name);
  if (head == tensors.tensors().end() || embedding == tensors.tensors().end()) return false;
  return head->second.dtype != embedding->second.dtype ||
         !std::ranges::equal(head->second.bytes, embedding->second.bytes);
}

/// Older tools save what follows from the config: RoPE's frequencies, and the mask.
bool follows_from_config(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with("rotary_emb.cos_cached") ||
         name.ends_with("rotary_emb.sin_cached") || name.ends_with("self_attn.bias") ||
         name.ends_with("self_attn.masked_bias");
}

/// Tells which of the file's tensors nothing uses, those that change no result apart.
std::vector<ModelNote> note_unused(const Safetensors& tensors, const std::vector<Piece>& pieces) {
  std::unordered_set<std::string_view> used;
  for (const Piece& piece : pieces) used.insert(piece.name);
  std::vector<std::string> unused;
  std::vector<std::string> derived;
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (used.contains(name)) continue;
    // A tied head is the embeddings once more.
    const bool harmless = name == head_name || follows_from_config(name);
    (harmless ? derived : unused).push_back(shown_name(name));
  }
  std::vector<ModelNote> notes;
  if (!unused.empty()) {
    notes.push_back({ModelNote::Level::warning,
                     fmt::format("tensors that nothing uses: {}", shown_list(unused))});
  }
  if (!derived.empty()) {
    notes.push_back({ModelNote::Level::detail,
                     fmt::format("tensors that are not needed: {}", shown_list(derived))});
  }
  return notes;
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
  const std::size_t hidden = config.hidden_size;
  const std::size_t qkv = config.query_size() + 2 * config.kv_size();
  const std::size_t gate_up = 2 * config.intermediate_size;
  const auto take_if = [&](bool there, std::size_t size) {
    return there ? cursor.take(size) : nullptr;
  };
  LayerWeights layer;
  layer.input_norm = cursor.take(hidden);
  layer.qkv = cursor.take(qkv * hidden);
  layer.qkv_bias = take_if(config.qkv_biases, qkv);
  layer.query_norm = take_if(config.architecture.norms_heads, config.head_dim);
  layer.key_norm = take_if(config.architecture.norms_heads, config.head_dim);
  layer.attention_out = cursor.take(hidden * config.query_size());
  layer.attention_out_bias = take_if(config.attention_out_bias, hidden);
  layer.attention_norm = cursor.take(hidden);
  layer.gate_up = cursor.take(gate_up * hidden);
  layer.gate_up_bias = take_if(config.mlp_biases, gate_up);
  layer.down = cursor.take(hidden * config.intermediate_size);
  layer.down_bias = take_if(config.mlp_biases, hidden);
  return layer;
}

}  // namespace

std::size_t parameter_count(const ModelConfig& config) {
  std::size_t total = 0;
  for (const Piece& piece : pieces_of(config)) total += piece.size();
  return total;
}

Result<LlamaWeights> LlamaWeights::load(const Safetensors& tensors, const ModelConfig& stated) {
  ModelConfig config = stated;
  LlamaWeights weights;
  if (config.tied_embeddings && has_own_head(tensors)) {
    config.tied_embeddings = false;
    weights.notes_.push_back(
        {ModelNote::Level::warning,
         fmt::format("{} differs from {} and is used, though tie_word_embeddings is true",
                     head_name, embedding_name)});
  }
  const std::vector<Piece> pieces = pieces_of(config);
  for (const Piece& piece : pieces) TERRACE_TRY(check_piece(piece, tensors));
  std::ranges::move(note_unused(tensors, pieces), std::back_inserter(weights.notes_));
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
