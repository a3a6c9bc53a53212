// The weights of a decoder as f32 matrices, in one array.
//
// A matrix is row-major [outputs, inputs], as Hugging Face stores it. Matrices that read the same
// input lie one after another and are used as one: fewer, larger products.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "terrace/core/result.hpp"
#include "terrace/engine/float_array.hpp"
#include "terrace/engine/model_config.hpp"
#include "terrace/engine/safetensors.hpp"

namespace terrace::engine {

/// A decoder layer. The pointers lead into the LlamaWeights that made them.
struct LayerWeights {
  const float* input_norm = nullptr;  ///< [hidden]
  const float* qkv = nullptr;         ///< [query_size + 2 kv_size, hidden]: queries, keys, values
  const float* attention_out = nullptr;   ///< [hidden, query_size]
  const float* attention_norm = nullptr;  ///< [hidden], before the feed-forward part
  const float* gate_up = nullptr;         ///< [2 intermediate, hidden]: gate first
  const float* down = nullptr;            ///< [hidden, intermediate]
  // These are null if the model lacks them.
  const float* query_norm = nullptr;          ///< [head_dim], of each head
  const float* key_norm = nullptr;            ///< [head_dim]
  const float* qkv_bias = nullptr;            ///< [query_size + 2 kv_size]
  const float* attention_out_bias = nullptr;  ///< [hidden]
  const float* gate_up_bias = nullptr;        ///< [2 intermediate]
  const float* down_bias = nullptr;           ///< [hidden]
};

/// Returns the parameters of a model of this config.
std::size_t parameter_count(const ModelConfig& config);

class LlamaWeights {
 public:
  /// Converts the tensors that `config` asks for. Nothing is allocated before every name and
  /// shape is checked, so a config that lies costs an error line, not memory.
  ///
  /// Memory   4 bytes per parameter; tied embeddings once
  /// Cost     reads each tensor once, on the calling thread
  /// Where the config ties the head to the embeddings and the file has a head that differs from
  /// them, that one is used, as transformers does. notes() says so, and which tensors nothing uses.
  ///
  /// Errors   corrupt: a tensor is missing; invalid_argument: its shape does not fit the config
  ///          (named: tensor, expected and found shape); unsupported: its element type;
  ///          out_of_memory
  /// Tests    tests/engine/weights_test.cpp
  static Result<LlamaWeights> load(const Safetensors& tensors, const ModelConfig& config);

  [[nodiscard]] const LayerWeights& layer(std::size_t i) const noexcept { return layers_[i]; }
  [[nodiscard]] const float* embedding() const noexcept { return embedding_; }  ///< [vocab, hidden]
  [[nodiscard]] const float* final_norm() const noexcept { return final_norm_; }  ///< [hidden]
  [[nodiscard]] const float* head() const noexcept { return head_; }  ///< [vocab, hidden]
  [[nodiscard]] std::size_t parameters() const noexcept { return values_.size(); }
  [[nodiscard]] const std::vector<ModelNote>& notes() const noexcept { return notes_; }
  /// All weights, one after another: every pointer leads into this array.
  [[nodiscard]] std::span<const float> values() const noexcept { return values_.span(); }

 private:
  FloatArray values_;
  std::vector<LayerWeights> layers_;
  std::vector<ModelNote> notes_;
  const float* embedding_ = nullptr;
  const float* final_norm_ = nullptr;
  const float* head_ = nullptr;
};

}  // namespace terrace::engine
