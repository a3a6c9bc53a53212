// The executor of a decoder's own arithmetic: functions of the compute queue where the device is
// the host, kernels on a device. Attention of steps, selection and the rows' ways are the
// backend's.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "terrace/core/backend.hpp"
#include "terrace/engine/llama_model.hpp"

namespace terrace::engine {

struct ArithmeticOptions {
  Dtype kv_dtype = Dtype::f16;
  std::size_t chunk_tokens = 512;               ///< query rows of a prompt at once
  std::size_t rope_length = 0;                  ///< tokens that RoPE is scaled for
  Duration deadline = std::chrono::minutes{1};  ///< of each wait
};

/// All work is enqueued on the compute queue it was made with, in the order of the calls; nobody
/// waits. Pointers are to memory that the backend's ops reach, unless a line says otherwise.
class Arithmetic {
 public:
  Arithmetic() = default;
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;
  virtual ~Arithmetic() = default;

  /// Returns the name of the code that multiplies a prompt's rows with weights, for people.
  [[nodiscard]] virtual std::string_view gemm() const noexcept = 0;

  /// Makes room for a prompt and embeds its tokens, which must be in the vocabulary. The queue must
  /// be idle.
  ///
  /// Errors   out_of_memory
  virtual Status begin_prompt(std::span<const TokenId> tokens) = 0;

  /// The same of a piece of a prompt alone: at most chunk_tokens tokens, from `position` on. Memory
  /// is of a piece, and stays for the next one. Results for a token have the same bits
  /// whatever piece it comes in.
  virtual Status begin_piece(std::span<const TokenId> tokens, std::size_t position) = 0;

  /// Gives back what only a prompt needs. The queue must be idle.
  virtual void end_prompt() noexcept = 0;

  /// Projects a chunk of the prompt, or a piece: its queries, and its rows among those of the
  /// layer. Rows of two layers are kept in turn. `rows` are positions, here and below.
  virtual Status project_prompt(std::size_t layer, RowRange rows) = 0;

  /// Queries of the chunk that was projected last, [rows, query_heads, head_dim].
  [[nodiscard]] virtual const float* prompt_query() const noexcept = 0;

  /// Keys and values of a layer's prompt, or piece, from its first token on.
  [[nodiscard]] virtual KvTensors prompt_rows(std::size_t layer) const noexcept = 0;

  /// The chunk's queries for the host, [rows, query_heads, head_dim], there when a function
  /// enqueued behind runs and until the next chunk is projected.
  virtual Result<std::span<const float>> read_queries(std::size_t rows) = 0;

  /// Keeps keys as they are before RoPE, too, from the next projection on. Errors: out_of_memory.
  virtual Status keep_pre_rope_keys() = 0;
  /// The chunk's, or the step's, for the host, [rows, kv_heads, head_dim], as read_queries().
  virtual Result<std::span<const float>> read_pre_rope_keys(std::size_t rows) = 0;

  /// Projects the queries that a layer would have if its input were that of the layer before: of
  /// the tokens of a piece, or of a step's. Before the layer before is ended, and behind what reads
  /// keys before RoPE. Errors: out_of_memory.
  virtual Status speculate_prompt(std::size_t layer, RowRange rows) = 0;
  virtual Status speculate_step(std::size_t layer, std::size_t position) = 0;
  /// Those of the last call, [rows, query_heads, head_dim], until the next one.
  [[nodiscard]] virtual const float* speculated_query() const noexcept = 0;

  /// Where attention of the chunk goes, [rows, query_heads, head_dim].
  [[nodiscard]] virtual float* prompt_attention() noexcept = 0;

  /// Attends the chunk's queries to a prompt up to their own positions, from position 0 on.
  virtual Status attend_prompt(std::size_t layer, RowRange rows) = 0;

  /// Takes what attention found of the chunk, and ends the layer.
  virtual Status finish_prompt(std::size_t layer, RowRange rows) = 0;

  /// Embeds the token of a step, which must be in the vocabulary. The queue must be idle.
  ///
  /// Errors   out_of_memory
  virtual Status begin_step(TokenId token) = 0;

  /// Projects the token at `position`: its query, and its row.
  virtual Status project_step(std::size_t layer, std::size_t position) = 0;
  [[nodiscard]] virtual const float* step_query(std::size_t layer) const noexcept = 0;
  [[nodiscard]] virtual KvTensors step_rows() const noexcept = 0;

  /// Where attention of a step goes, [query_heads, head_dim].
  [[nodiscard]] virtual float* attention() noexcept = 0;

  /// Makes attention() of a step readable as kept_attention(), once the queue has come here: the
  /// next layer's goes to the same place.
  virtual Status keep_attention(std::size_t layer) = 0;

  /// Takes what attention found, and ends the layer.
  virtual Status finish_step(std::size_t layer) = 0;

  /// Predicts from token `token` of the prompt or piece; of a step, from token 0. Makes logits(),
  /// and after a step query(), readable by the host once the queue has come here, and does what
  /// show_checks does.
  virtual Status predict(std::size_t token) = 0;
  [[nodiscard]] virtual std::span<const float> logits() const noexcept = 0;
  /// For a piece that nothing is predicted from: makes what check_stored_rows looks at readable.
  virtual Status show_checks() { return {}; }
  /// Once the queue has come behind predict or show_checks: whether the rows stored since the
  /// prompt, piece or step began are finite, where the work itself cannot fail for it.
  ///
  /// Errors   as check_rows
  [[nodiscard]] virtual Status check_stored_rows() const { return {}; }
  [[nodiscard]] virtual std::span<const float> query(std::size_t layer) const noexcept = 0;
  [[nodiscard]] virtual std::span<const float> kept_attention(std::size_t layer) const noexcept = 0;

  /// Rows for the host: `count` tokens of `rows` from token `first` on, there when a function
  /// enqueued behind runs and until the next call.
  virtual Result<KvTensors> read_rows(const KvTensors& rows, std::size_t first,
                                      std::size_t count) = 0;
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
