// Full attention over a plain contiguous KV cache: what tiered decoding is measured against.
//
//   TERRACE_ASSIGN(auto decoder, ReferenceDecoder::create(model, {.capacity = 4096}, threads));
//   TERRACE_ASSIGN(const FloatArray hidden, decoder.prefill(tokens));
//   TERRACE_TRY(decoder.step(next_token, logits));
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "terrace/core/dtype.hpp"
#include "terrace/engine/llama_model.hpp"

namespace terrace::engine {

/// Decodes one sequence. The model and the threads must outlive it.
class ReferenceDecoder {
 public:
  struct Options {
    Dtype kv_dtype = Dtype::f16;
    std::size_t capacity = 0;      ///< tokens, prefill and decoding together
    std::size_t chunk_rows = 512;  ///< tokens that prefill takes through a layer at once
    std::size_t rope_length = 0;   ///< tokens that RoPE is scaled for: see Rope
  };

  /// Errors   invalid_argument: a zero in the options; out_of_memory
  static Result<ReferenceDecoder> create(const LlamaModel& model, const Options& options,
                                         Parallel& parallel);

  /// Appends `tokens` and returns their last hidden states [tokens.size(), hidden_size], for
  /// LlamaModel::logits.
  ///
  /// Errors   invalid_argument: no tokens, a token outside the vocabulary, more than the capacity;
  ///          unsupported: a key or value that the KV dtype cannot hold; out_of_memory. The
  ///          sequence stays unchanged
  Result<FloatArray> prefill(std::span<const TokenId> tokens);

  /// Appends one token and writes the logits [vocabulary] of what follows it.
  ///
  /// Errors   invalid_argument: a token outside the vocabulary, the capacity is used up;
  ///          unsupported: a key or value that the KV dtype cannot hold, a logit that is not finite
  Status step(TokenId token, std::span<float> logits);

  [[nodiscard]] std::size_t position() const noexcept { return position_; }
  [[nodiscard]] Workspace& workspace() noexcept { return workspace_; }

 private:
  ReferenceDecoder(const LlamaModel& model, const Options& options, Parallel& parallel)
      : model_(&model), parallel_(&parallel), options_(options) {}

  [[nodiscard]] std::byte* layer_rows(std::size_t layer) noexcept;
  Status project(std::size_t layer, const float* hidden, RowRange rows);
  /// Attends the tokens that were projected last, each to all up to its own: for each query head a
  /// plain loop in double, exact and slow.
  void attend(std::size_t layer, RowRange rows);
  void attend_one(std::size_t layer, std::size_t row, std::size_t position, std::size_t query_head);

  const LlamaModel* model_;
  Parallel* parallel_;
  Options options_;
  Workspace workspace_;
  FloatArray query_;           // [chunk_rows, query_size]
  FloatArray key_;             // [chunk_rows, kv_size]
  FloatArray value_;           // [chunk_rows, kv_size]
  FloatArray attended_;        // [chunk_rows, query_size]
  FloatArray hidden_;          // [hidden_size], of a step
  std::vector<std::byte> kv_;  // [layers, kv_heads, capacity, 2, head_dim]
  std::size_t position_ = 0;
};

}  // namespace terrace::engine
