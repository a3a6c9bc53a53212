// The shape of a decoder: the numbers of its config.json, and how it differs from Llama's.
//
//   TERRACE_ASSIGN(const ModelConfig config, read_model_config("models/tiny"));
//   const KvShape shape = config.kv_shape(Dtype::f16);
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

#include "terrace/core/ids.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/engine/model_note.hpp"
#include "terrace/engine/rope_scaling.hpp"

namespace terrace::engine {

/// The differences of an architecture from Llama; everything else in its decoder is the same.
struct Architecture {
  std::string_view name = "LlamaForCausalLM";  ///< as config.json has it
  std::string_view model_type = "llama";
  bool norms_heads = false;    ///< queries and keys are normalised head by head, before RoPE
  bool fuses_qkv = false;      ///< one tensor has queries, keys and values
  bool fuses_gate_up = false;  ///< one tensor has gate and up
  bool rotates_neighbours =
      false;  ///< RoPE's pairs are neighbours; else they are half a head apart

  bool operator==(const Architecture&) const = default;
};

struct ModelConfig {
  Architecture architecture = {};
  std::size_t hidden_size = 0;
  std::size_t layers = 0;
  std::size_t query_heads = 0;
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;
  std::size_t intermediate_size = 0;
  std::size_t vocabulary = 0;
  std::size_t positions_max = 0;  ///< the context the model was made for; a promise, not a limit
  double rms_norm_epsilon = 1e-6;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  std::size_t rotary_dims = 0;   ///< elements of a head that RoPE rotates, the first ones; 0: all
  bool tied_embeddings = false;  ///< the output head is the embedding matrix
  bool qkv_biases = false;       ///< of the projections to queries, keys and values
  bool attention_out_bias = false;
  bool mlp_biases = false;            ///< of the feed-forward part
  std::vector<ModelNote> notes = {};  ///< on what in config.json has no effect

  [[nodiscard]] std::size_t rotated_dims() const noexcept {
    return rotary_dims == 0 ? head_dim : rotary_dims;
  }
  /// Elements of one token's queries, over all heads.
  [[nodiscard]] std::size_t query_size() const noexcept { return query_heads * head_dim; }
  /// Elements of one token's keys (or values), over all KV heads.
  [[nodiscard]] std::size_t kv_size() const noexcept { return kv_heads * head_dim; }
  [[nodiscard]] KvShape kv_shape(Dtype dtype) const noexcept {
    return {layers, query_heads, kv_heads, head_dim, dtype};
  }

  bool operator==(const ModelConfig&) const = default;
};

/// Reads `folder`/config.json as Hugging Face writes it for an architecture that is supported: the
/// spelling of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters). Keys that may be
/// missing take Hugging Face's defaults.
///
/// Errors   io_error: no such file; corrupt: no JSON object; invalid_argument: a key is missing or
///          its value cannot be; unsupported: another architecture, activation, RoPE type,
///          quantised weights, or a key that asks for what is not computed. Each
///          names the file and the key, and what is accepted
/// Tests    tests/engine/model_config_test.cpp, tests/engine/rope_config_test.cpp
Result<ModelConfig> read_model_config(const std::filesystem::path& folder);

/// Reads only the shape of keys and values, for any architecture whose config.json has Llama's keys
/// for sizes.
///
/// Errors   io_error, corrupt, invalid_argument: as read_model_config
Result<KvShape> read_kv_shape(const std::filesystem::path& folder, Dtype dtype);

/// Returns the tokens with which generated text ends, perhaps an empty list: those of `folder`'s
/// generation_config.json, or, if the file is missing or names no token, of its config.json. Only
/// callers that generate text need them.
///
/// Errors   as read_model_config; tokens outside the vocabulary are ignored
/// Tests    tests/engine/model_config_test.cpp
Result<std::vector<TokenId>> read_end_tokens(const std::filesystem::path& folder,
                                             std::size_t vocabulary);

}  // namespace terrace::engine
