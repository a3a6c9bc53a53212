// Joins a Llama model to a runtime: the first embedder of Terrace, and its example.
//
//   auto decoder = Decoder::create(model, *runtime, {});
//   (*decoder)->prefill(sequence, prompt);    // logits() now predict the token after the prompt
//   (*decoder)->step(sequence, token);        // logits() now predict the token after `token`
//   (*decoder)->prefill(sequence, question);  // more of a prompt, over all tiers
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

/// Gets keys and values when they are stored, for measuring. Called on the compute queue's thread.
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
  std::size_t chunk_tokens = 512;  ///< of a prompt, that are multiplied with weights at once
  std::size_t rope_length = 0;     ///< tokens that RoPE is scaled for: see Rope
  /// The longest wait for a step, or for a prompt that makes no progress.
  Duration deadline = std::chrono::minutes{10};
  std::function<void(double)> progress;  ///< share of a prompt done; caller's thread
};

struct PromptOptions {
  /// Tokens that go through all layers together, as a step of the runtime; 0 = all.
  std::size_t piece_tokens = 0;
  /// If it is not 0 the prompt does not end here: later calls give at least so many of its tokens,
  /// to the sequence or to forks of it, and logits() keep their old values.
  std::size_t to_come = 0;
};

/// Threads  one at a time
class Decoder {
 public:
  /// Model and runtime must outlive it.
  ///
  /// Errors   invalid_argument: no chunk, or a runtime of another shape than the model's;
  ///          unsupported: the backend moves no bytes, or its device is one that the engine has no
  ///          kernels for; out_of_memory
  static Result<std::unique_ptr<Decoder>> create(const LlamaModel& model, Runtime& runtime,
                                                 DecoderOptions options);
  /// Waits for what is enqueued: a sequence that it waits for must be closed first.
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Runs a prompt, or the next part of it, piece by piece through all layers. Its tokens attend as
  /// RuntimeOptions::prompts says, to rows in any tier. The bits of results depend neither on
  /// pieces nor on chunks: if memory is short, pieces are smaller than asked for. On an error the
  /// sequence is at its old length, or says that it is lost.
  ///
  /// Memory   of a piece, 4 bytes x (hidden + 2 query heads x head_dim) x tokens, and one layer's
  ///          keys and values; of a chunk, other activations; what the runtime takes of a step
  /// Errors   invalid_argument: no tokens, a token outside the vocabulary, or a sequence that is
  ///          not idle; unsupported: a key or value that the KV dtype cannot hold, naming the
  ///          layer, or a logit that is not finite; the sequence's and the queue's own
  Status prefill(Sequence& sequence, std::span<const TokenId> tokens,
                 const PromptOptions& options = {});

  /// Runs one token. On an error the sequence is at its old length, or says that it is lost.
  ///
  /// Errors   as prefill
  Status step(Sequence& sequence, TokenId token);

  /// Returns the logits after the last token, [vocabulary].
  [[nodiscard]] std::span<const float> logits() const noexcept;

  /// Returns the queries, post-RoPE, and the output of attention of a layer in the last step,
  /// [query_heads, head_dim]; empty where no step had an observer.
  [[nodiscard]] std::span<const float> query(std::size_t layer) const noexcept;
  [[nodiscard]] std::span<const float> attention(std::size_t layer) const noexcept;

  /// Returns what multiplies a prompt's rows with weights: "OpenBLAS", "cuBLAS" or "own kernels".
  [[nodiscard]] std::string_view gemm() const noexcept;

  [[nodiscard]] Queue& compute_queue() noexcept { return *compute_; }

  /// Calls `observer` with all rows from now on; null stops it.
  void observe(KvObserver* observer) noexcept { observer_ = observer; }

 private:
  /// Tokens that go through all layers together, and the prompt that they belong to.
  struct Piece {
    std::span<const TokenId> tokens = {};
    std::size_t position = 0;    ///< of the first one
    std::size_t prompt_end = 0;  ///< 0 = no prompt: a token that decodes
    double share_before = 0;     ///< of what prefill() was given, before this piece
    double share = 0;

    [[nodiscard]] bool decodes() const noexcept { return prompt_end == 0; }
    [[nodiscard]] std::size_t end() const noexcept { return position + tokens.size(); }
    /// Whether the next token is predicted from its last token.
    [[nodiscard]] bool predicts() const noexcept { return decodes() || end() == prompt_end; }
  };

  Decoder(const LlamaModel& model, Runtime& runtime, DecoderOptions options);

  /// Waits for what a call that failed has left on the queue, for it works in memory that the next
  /// one replaces, and makes the queue usable again.
  Status come_to_rest();
  /// Waits until the queue has come there, however long, as long as it moves on. Errors: the
  /// work's own; not_ready: nothing has ended within the deadline.
  Status wait_while_moving(Ticket ticket);

  Status run_prompt(Sequence& sequence, std::span<const TokenId> tokens,
                    const PromptOptions& options);
  /// Runs a piece as a step of the runtime. On an error the sequence has its old length or, where
  /// numbers are not finite, has the piece.
  Status run(Sequence& sequence, const Piece& piece);
  Result<std::unique_ptr<Step>> begin(Sequence& sequence, const Piece& piece);
  /// Enqueues all layers. Returns the ticket of the last one's attention.
  Result<Ticket> enqueue(Step& step, const Sequence& sequence, const Piece& piece);
  /// Enqueues a layer up to its attention.
  Status attend(Step& step, const Sequence& sequence, const Piece& piece, std::size_t layer);
  /// Returns the hints that policies use of a piece.
  Result<PromptHints> hints_of(const Sequence& sequence, const Piece& piece);
  /// Lets the observer see the piece's rows once the queue has come here.
  Status show_rows(const Piece& piece, std::size_t layer);
  /// Says that so many layers of the piece are done.
  void tell_progress(const Piece& piece, std::size_t layers) const;
  /// Checks what a piece left: rows that fit their dtype and, where it predicts, finite logits.
  [[nodiscard]] Status check_numbers(const Piece& piece) const;

  /// Takes the sequence back to `length`.
  void take_back(Sequence& sequence, std::size_t length);
  /// The same, and no more of a prompt is to come.
  void give_prompt_up(Sequence& sequence, std::size_t length);

  const LlamaModel& model_;
  Runtime& runtime_;
  DecoderOptions options_;
  std::unique_ptr<Queue> compute_;
  std::unique_ptr<Arithmetic> arithmetic_;
  KvObserver* observer_ = nullptr;
};

}  // namespace terrace::engine
