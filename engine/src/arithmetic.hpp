// The executor of a decoder's own arithmetic: functions of the compute queue where the device is
// the host, kernels on a device. Attention, selection and the rows' ways are the backend's.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "terrace/core/backend.hpp"
#include "terrace/engine/llama_model.hpp"

namespace terrace::engine {

struct ArithmeticOptions {
  Dtype kv_dtype = Dtype::f16;
  std::size_t chunk_tokens = 512;               ///< rows of a prompt that are multiplied at once
  std::size_t rope_length = 0;                  ///< tokens that RoPE is scaled for
  Duration deadline = std::chrono::minutes{1};  ///< of each wait
};

/// Tokens that go through all layers together: a piece of a prompt, or a token that decodes.
struct PieceSetup {
  std::span<const TokenId> tokens = {};  ///< of the vocabulary
  std::size_t position = 0;              ///< of the first one
  bool decodes = false;                  ///< one token, which is multiplied alone
  bool keeps_pre_rope_keys = false;
  bool speculates = false;
};

/// For each piece: begin, then for each layer project, attention by the caller, and finish;
/// then predict or show_checks. All work is enqueued on the compute queue it was made with, in the
/// order of the calls; no call waits. Pointers are to memory that the backend's ops reach, unless a
/// line says otherwise; each layer overwrites the results of the one before.
///
/// Results for a token of a prompt have the same bits in pieces and chunks of any size.
///
/// Memory   of a piece: hidden states, queries, attention, keys and values; of a chunk: the rest
class Arithmetic {
 public:
  Arithmetic() = default;
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;
  virtual ~Arithmetic() = default;

  /// Returns the name of the code that multiplies a prompt's rows with weights, for people.
  [[nodiscard]] virtual std::string_view gemm() const noexcept = 0;

  /// Makes room for a piece and embeds its tokens. The queue must be idle.
  ///
  /// Errors   out_of_memory
  virtual Status begin(const PieceSetup& piece) = 0;

  /// Gives back the memory of a piece. The queue must be idle.
  virtual void release() noexcept = 0;

  /// Projects the tokens: their queries, keys and values.
  virtual Status project(std::size_t layer) = 0;
  [[nodiscard]] virtual const float* query() const noexcept = 0;  ///< [tokens, query_heads, dim]
  [[nodiscard]] virtual KvTensors rows() const noexcept = 0;      ///< [tokens]
  /// The target of attention, [tokens, query_heads, head_dim].
  [[nodiscard]] virtual float* attention() noexcept = 0;

  /// Projected tensors that the host can read: valid in functions that are enqueued after this
  /// call, until the next layer is projected. Queries are those of the last `count` tokens, [count,
  /// query_heads, head_dim]; keys before RoPE are [tokens, kv_heads, head_dim].
  virtual Result<std::span<const float>> read_queries(std::size_t count) = 0;
  [[nodiscard]] virtual std::span<const float> read_pre_rope_keys() const noexcept = 0;
  virtual Result<KvTensors> read_rows() = 0;

  /// Projects the queries that a layer would have if its input were that of the layer before.
  /// Before that one is finished, in pieces that speculate.
  virtual Status speculate(std::size_t layer) = 0;
  /// The queries of the last speculate(), [tokens, query_heads, head_dim], until the next one.
  [[nodiscard]] virtual const float* speculated_query() const noexcept = 0;

  /// Makes the query and attention() of a token that decodes readable as kept_query() and
  /// kept_attention(), once the queue has come here. Errors: out_of_memory.
  virtual Status keep(std::size_t layer) = 0;

  /// Takes what attention found, and ends the layer.
  virtual Status finish(std::size_t layer) = 0;

  /// Predicts from the last token. Makes logits() readable by the host once the queue has come
  /// here, and does what show_checks does.
  virtual Status predict() = 0;
  [[nodiscard]] virtual std::span<const float> logits() const noexcept = 0;
  /// For a piece that nothing is predicted from: makes what check_stored_rows looks at readable.
  virtual Status show_checks() { return {}; }
  /// After the queue has finished predict or show_checks: returns whether the rows stored since the
  /// piece began are finite, for backends whose work cannot report that itself.
  ///
  /// Errors   as check_rows
  [[nodiscard]] virtual Status check_stored_rows() const { return {}; }

  /// Host memory, [query_heads, head_dim]; empty where nothing was kept.
  [[nodiscard]] virtual std::span<const float> kept_query(std::size_t layer) const noexcept = 0;
  [[nodiscard]] virtual std::span<const float> kept_attention(std::size_t layer) const noexcept = 0;
};

/// Each of the two that there are; the second in builds with CUDA.
[[nodiscard]] Result<std::unique_ptr<Arithmetic>> make_host_arithmetic(
    const LlamaModel& model, Backend& backend, Queue& compute, const ArithmeticOptions& options);
[[nodiscard]] Result<std::unique_ptr<Arithmetic>> make_cuda_arithmetic(
    const LlamaModel& model, Backend& backend, Queue& compute, const ArithmeticOptions& options);

/// Makes what goes with the backend. Model, backend and queue must outlive it.
///
/// Errors   unsupported: a device for which the engine has no kernels; out_of_memory
[[nodiscard]] Result<std::unique_ptr<Arithmetic>> make_arithmetic(const LlamaModel& model,
                                                                  Backend& backend, Queue& compute,
                                                                  const ArithmeticOptions& options);

}  // namespace terrace::engine
