// A decoder like Llama's without its attention: what happens to a token before and after it looks
// at others. The caller owns the keys and values, and decides which of them are attended.
//
//   model.embed(tokens, hidden);
//   for each layer:
//     model.project_qkv(layer, hidden, rows, {.query = q, .key = k, .value = v}, workspace,
//     threads);
//     ... append k and v to the cache, attend q to it into `attention` ...
//     model.finish_layer(layer, attention, rows.count, hidden, workspace, threads);
//   model.logits(hidden, rows.count, logits, workspace, threads);
//
// All activations are f32, row-major, one row per token, contiguous.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "terrace/core/ids.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/core/result.hpp"
#include "terrace/engine/float_array.hpp"
#include "terrace/engine/model_config.hpp"
#include "terrace/engine/rope.hpp"
#include "terrace/engine/weights.hpp"

namespace terrace::engine {

/// Consecutive positions of one sequence.
struct RowRange {
  std::size_t first_position = 0;
  std::size_t count = 0;
};

/// The targets of a layer's projections.
struct QkvTargets {
  float* query = nullptr;         ///< [rows, query_heads, head_dim], post-RoPE
  float* key = nullptr;           ///< [rows, kv_heads, head_dim], post-RoPE
  float* value = nullptr;         ///< [rows, kv_heads, head_dim]
  float* key_pre_rope = nullptr;  ///< [rows, kv_heads, head_dim], or null if no caller needs it
};

/// Intermediate results of up to `rows_max` rows, so that no call allocates. Each thread that
/// drives a model has its own.
struct Workspace {
  std::size_t rows_max = 0;
  Rope rope = {};
  RopeAngles angles = {};
  FloatArray normed = {};     ///< [rows, hidden]
  FloatArray qkv = {};        ///< [rows, query_size + 2 kv_size]
  FloatArray gate_up = {};    ///< [rows, 2 intermediate]
  FloatArray activated = {};  ///< [rows, intermediate]
};

class LlamaModel {
 public:
  /// Reads config.json and the weights of `folder`. OpenBLAS is set to one thread for the whole
  /// process: threads come from `Parallel` alone.
  ///
  /// Memory   4 bytes per parameter
  /// Errors   those of read_model_config, Safetensors::open and LlamaWeights::load
  static Result<LlamaModel> load(const std::filesystem::path& folder);

  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  [[nodiscard]] const LlamaWeights& weights() const noexcept { return weights_; }
  /// Names the parts of the model's files that have no effect. The model runs without them.
  [[nodiscard]] const std::vector<ModelNote>& notes() const noexcept { return config_.notes; }
  [[nodiscard]] std::size_t parameters() const noexcept { return weights_.parameters(); }

  /// Makes a workspace for calls of up to `rows_max` rows, which rotates for sequences of
  /// `rope_length` tokens (Rope); 0 = short ones.
  ///
  /// Errors   invalid_argument: rows_max is 0 or above 2^20; out_of_memory
  [[nodiscard]] Result<Workspace> make_workspace(std::size_t rows_max,
                                                 std::size_t rope_length = 0) const;

  /// Errors   invalid_argument: a token outside the vocabulary
  [[nodiscard]] Status check(std::span<const TokenId> tokens) const;

  /// Copies the embedding of each token.
  ///
  /// Shapes   hidden [tokens.size(), hidden_size]
  /// Errors   those of check; hidden is not written then
  Status embed(std::span<const TokenId> tokens, float* hidden) const;

  /// Normalises, projects and rotates: the first half of a layer.
  ///
  /// Shapes   hidden [rows.count, hidden_size], not changed
  /// Limits   rows.count <= workspace.rows_max; allocates nothing
  void project_qkv(std::size_t layer, const float* hidden, RowRange rows, const QkvTargets& targets,
                   Workspace& workspace, Parallel& parallel) const;

  /// Adds what attention found and the feed-forward part: the second half of a layer.
  ///
  /// Shapes   attention [rows, query_heads, head_dim]; hidden [rows, hidden_size], updated
  /// Limits   rows <= workspace.rows_max; allocates nothing
  void finish_layer(std::size_t layer, const float* attention, std::size_t rows, float* hidden,
                    Workspace& workspace, Parallel& parallel) const;

  /// Final norm and output head.
  ///
  /// Shapes   hidden [rows, hidden_size], not changed; logits [rows, vocabulary]
  /// Limits   rows <= workspace.rows_max; allocates nothing
  void logits(const float* hidden, std::size_t rows, float* logits, Workspace& workspace,
              Parallel& parallel) const;

 private:
  LlamaModel(ModelConfig config, LlamaWeights weights);

  void normalise(const float* source, const float* weight, std::size_t rows, Workspace& workspace,
                 Parallel& parallel) const;
  void normalise_heads(const LayerWeights& weights, std::size_t row, Workspace& workspace) const;
  /// Rotates one head of a row.
  void rotate(const float* head, std::size_t row, const Workspace& workspace, float* target) const;
  void split_row(std::size_t row, const QkvTargets& targets, const Workspace& workspace) const;

  ModelConfig config_;
  LlamaWeights weights_;
};

}  // namespace terrace::engine
