// Joins a Llama model to a sequence of the runtime: the first embedder of Terrace, and its example.
//
//   auto decoder = Decoder::create(model, runtime.backend(), {.kv_dtype = Dtype::f16});
//   (*decoder)->prefill(sequence, prompt);   // logits() now predict the token behind the prompt
//   (*decoder)->step(sequence, token);       // logits() now predict the token behind `token`
//   (*decoder)->extend(runtime, sequence, question);  // more of a prompt, over all tiers
//
// All arithmetic is enqueued on one compute queue, as functions on the host or as kernels on a
// device; the host waits once a step, for the logits.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "terrace/core/backend.hpp"
#include "terrace/engine/llama_model.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::engine {

class Arithmetic;

/// Sees keys and values as they are stored, for measuring. Called on the compute queue's thread.
class KvObserver {
 public:
  KvObserver() = default;
  KvObserver(const KvObserver&) = delete;
  KvObserver& operator=(const KvObserver&) = delete;
  virtual ~KvObserver() = default;

  /// `kv` holds the tokens' rows in the KV dtype, in memory of the host, for the duration of the
  /// call.
  virtual void on_rows(std::size_t layer, TokenRange tokens, const KvTensors& kv) = 0;
};

struct DecoderOptions {
  Dtype kv_dtype = Dtype::f16;
  std::size_t chunk_tokens = 512;                ///< of a prompt, computed at once
  std::size_t rope_length = 0;                   ///< tokens that RoPE is scaled for: see Rope
  Duration deadline = std::chrono::minutes{10};  ///< of each chunk in a layer, and of a step
  std::function<void(double)> progress;          ///< share of a prefill done; caller's thread
};

/// Threads  one at a time
class Decoder {
 public:
  /// Errors   unsupported: the backend moves no bytes, or its device is one that the engine has no
  ///          kernels for; out_of_memory
  static Result<std::unique_ptr<Decoder>> create(const LlamaModel& model, Backend& backend,
                                                 DecoderOptions options);
  /// Waits for what is enqueued: a sequence that it waits for must be closed first.
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Runs a prompt through all layers, layer by layer with chunks of query rows inside.
  ///
  /// Memory   activations: 4 bytes x hidden x tokens, and two layers' K and V
  /// Errors   invalid_argument: no tokens, a token outside the vocabulary, or a sequence that has
  ///          tokens; unsupported: a key or value that the KV dtype cannot hold, naming the layer,
  ///          or a logit that is not finite; the sequence's and the queue's own
  Status prefill(Sequence& sequence, std::span<const TokenId> tokens);

  /// Runs a prompt, or more of one behind what the sequence has: chunk_tokens tokens at a time
  /// through all layers. They attend as RuntimeOptions::prompts says, to rows in whatever tier.
  /// `runtime` is the sequence's. Bits do not depend on chunk_tokens; they are not prefill's,
  /// which adds in another order. On an error the sequence is at its old length, or says that it is
  /// lost. Where `to_come` is not 0 the prompt does not end here: at least so many tokens of it are
  /// given by later calls, to the sequence or to forks of it, and logits() say nothing new.
  ///
  /// Memory   activations, K and V of chunk_tokens tokens and some; what the runtime takes of steps
  /// Errors   invalid_argument: no tokens, or a sequence that is not idle; else as prefill
  Status extend(Runtime& runtime, Sequence& sequence, std::span<const TokenId> tokens,
                std::size_t to_come = 0);

  /// Runs one token. On an error the sequence is at its old length, or says that it is lost.
  ///
  /// Errors   as prefill
  Status step(Sequence& sequence, TokenId token);

  /// Returns the logits after the last token, [vocabulary].
  [[nodiscard]] std::span<const float> logits() const noexcept;

  /// Returns the last step's queries of a layer, [query_heads, head_dim], post-RoPE.
  [[nodiscard]] std::span<const float> query(std::size_t layer) const noexcept;

  /// Returns the last step's output of attention in a layer, [query_heads, head_dim]; empty where
  /// no step had an observer.
  [[nodiscard]] std::span<const float> attention(std::size_t layer) const noexcept;

  /// Returns what multiplies a prompt's rows with weights: "OpenBLAS", "cuBLAS" or "own kernels".
  [[nodiscard]] std::string_view gemm() const noexcept;

  [[nodiscard]] Queue& compute_queue() noexcept { return *compute_; }

  /// Calls `observer` with all rows from now on; null stops it.
  void observe(KvObserver* observer) noexcept { observer_ = observer; }

 private:
  Decoder(const LlamaModel& model, DecoderOptions options);

  /// Waits for what a call that failed has left on the queue, for it works in memory that the next
  /// one replaces, and makes the queue usable again.
  Status come_to_rest();
  Status run_prompt(Sequence& sequence, std::span<const TokenId> tokens);
  /// Waits until a prompt's rows, of one that failed too, are read by nobody.
  void let_go_of_prompt();
  Status prefill_layer(Sequence& sequence, std::size_t layer, std::size_t tokens);
  /// Waits until a layer of the prompt is done, of which at most the one behind it was enqueued.
  Status wait_for_layer(std::size_t layer);
  Status append_chunk(Sequence& sequence, std::size_t layer, RowRange rows, std::size_t tokens);
  /// Returns the hints that a policy uses of these rows; the prompt ends at `prompt_end`.
  Result<PromptHints> hints_of(const Sequence& sequence, RowRange rows, std::size_t prompt_end);
  /// Runs pieces of a prompt that ends at `prompt_end`.
  Status run_pieces(Runtime& runtime, Sequence& sequence, std::span<const TokenId> tokens,
                    std::size_t prompt_end);
  Status run_piece(Runtime& runtime, Sequence& sequence, std::span<const TokenId> tokens,
                   std::size_t prompt_end);
  Status enqueue_piece(Step& step, const Sequence& sequence, RowRange rows, std::size_t prompt_end);
  /// Takes the sequence back to `length`, behind which no prompt is to come.
  void give_prompt_up(Sequence& sequence, std::size_t length);
  Status enqueue_step(Sequence& sequence, TokenId token);
  /// Checks what the last token, at `position`, left: rows that fit their dtype, finite logits.
  [[nodiscard]] Status check_numbers(std::size_t position) const;
  /// Takes the sequence back to `length`.
  void give_step_up(Sequence& sequence, std::size_t length);
  /// Lets the observer see rows once the queue has come here.
  Status show_rows(std::size_t layer, const KvTensors& rows, RowRange range, std::size_t position);

  const LlamaModel& model_;
  DecoderOptions options_;
  std::unique_ptr<Queue> compute_;
  std::unique_ptr<Arithmetic> arithmetic_;
  KvObserver* observer_ = nullptr;
  Ticket prompt_rows_read_[2];          ///< of two layers in turn
  std::vector<Ticket> chunks_done_[2];  ///< likewise
};

}  // namespace terrace::engine
