// Joins a Llama model to a sequence of the runtime: the first embedder of Terrace, and its example.
//
//   auto decoder = Decoder::create(model, runtime.backend(), {.kv_dtype = Dtype::f16});
//   (*decoder)->prefill(sequence, prompt);   // logits() now predict the token behind the prompt
//   (*decoder)->step(sequence, token);       // logits() now predict the token behind `token`
//
// All arithmetic is enqueued on one compute queue; the host waits once a step, for the logits.
// The model's own arithmetic runs on the host, as functions of that queue; attention, selection and
// the rows' ways are the backend's.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "terrace/core/backend.hpp"
#include "terrace/engine/activation.hpp"
#include "terrace/engine/llama_model.hpp"
#include "terrace/engine/prefill_attention.hpp"
#include "terrace/runtime/sequence.hpp"

namespace terrace::engine {

/// Sees keys and values as they are stored, for measuring. Called on the compute queue's thread.
class KvObserver {
 public:
  KvObserver() = default;
  KvObserver(const KvObserver&) = delete;
  KvObserver& operator=(const KvObserver&) = delete;
  virtual ~KvObserver() = default;

  /// `kv` holds the tokens' rows in the KV dtype, for the duration of the call.
  virtual void on_rows(std::size_t layer, TokenRange tokens, const KvTensors& kv) = 0;
};

struct DecoderOptions {
  Dtype kv_dtype = Dtype::f16;
  std::size_t chunk_tokens = 512;                ///< query rows prefilled at once
  Duration deadline = std::chrono::minutes{10};  ///< of a layer's prefill, and of a step
  std::function<void(double)> progress;          ///< share of a prefill done; caller's thread
};

/// Threads  one at a time
class Decoder {
 public:
  /// Errors   unsupported: the backend moves no bytes; out_of_memory
  static Result<std::unique_ptr<Decoder>> create(const LlamaModel& model, Backend& backend,
                                                 DecoderOptions options);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Runs a prompt through all layers, layer by layer with chunks of query rows inside.
  ///
  /// Memory   activations: 4 bytes x hidden x tokens, and two layers' K and V
  /// Errors   invalid_argument: no tokens, a token outside the vocabulary, or a sequence that has
  ///          tokens; the sequence's and the queue's own
  Status prefill(Sequence& sequence, std::span<const TokenId> tokens);

  /// Runs one token. On an error the sequence is at its old length, or says that it is lost.
  Status step(Sequence& sequence, TokenId token);

  /// Returns the logits after the last token, [vocabulary].
  [[nodiscard]] std::span<const float> logits() const noexcept;

  /// Returns the last step's queries of a layer, [query_heads, head_dim], post-RoPE.
  [[nodiscard]] std::span<const float> query(std::size_t layer) const noexcept;

  [[nodiscard]] Queue& compute_queue() noexcept { return *compute_; }

  /// Calls `observer` with all rows from now on; null stops it.
  void observe(KvObserver* observer) noexcept { observer_ = observer; }

 private:
  Decoder(const LlamaModel& model, Backend& backend, DecoderOptions options);

  Status reserve_prompt(std::size_t tokens);
  Status prefill_layer(Sequence& sequence, std::size_t layer, std::size_t tokens);
  Status enqueue_step(Sequence& sequence);
  Status enqueue_logits(const float* hidden);
  [[nodiscard]] KvTensors tensors(std::byte* rows, std::size_t capacity) const noexcept;
  void pack_rows(std::byte* rows, std::size_t capacity, RowRange range) const noexcept;

  const LlamaModel& model_;
  Backend& backend_;
  DecoderOptions options_;
  KvShape shape_;
  std::unique_ptr<Queue> compute_;
  Workspace workspace_;
  PrefillAttention attention_;
  KvObserver* observer_ = nullptr;

  FloatArray hidden_;           ///< [prompt tokens, hidden_size]
  FloatArray chunk_query_;      ///< [chunk, query_size]
  FloatArray chunk_key_;        ///< [chunk, kv_size]
  FloatArray chunk_value_;      ///< [chunk, kv_size]
  Activation chunk_attention_;  ///< [chunk, query_size]
  Activation step_query_;       ///< [layers, query_size]
  FloatArray logits_;           ///< [vocabulary]
  Activation prompt_rows_[2];   ///< [kv_heads, tokens] rows, of two layers in turn
  Activation step_rows_;        ///< [kv_heads] rows
  Ticket prompt_rows_read_[2];
};

}  // namespace terrace::engine
