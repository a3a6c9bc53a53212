// A step of a batch: each of some sequences attends with some query tokens, layer by layer, all of
// them in one call. One token: a step of decoding. Several: a piece of a prompt, or a draft that is
// to be verified.
//
//   const StepMember members[] = {{a.get()}, {b.get(), 512}};
//   auto step = runtime->begin_step(members, *compute);         // makes room
//   for (std::size_t l = 0; l < layers; ++l) {
//     ... the engine computes q, k and v of all tokens on `compute` ...
//     step->attend(LayerId{l}, tensors);                          // enqueues
//   }
//   step->end();                                                // looks after caches, waits
//   for each sequence: step->status(i)                            // the failure of sequence i
//   step->begin_next(members);                                  // the next token: no allocation
//
// A failure stays with its sequence: the other sequences go on, and their outputs are the same bits
// as in a batch without it. Outputs depend neither on the other sequences of a batch nor on the
// order. All sequences share the work on the compute queue, and the copies by which rows and
// selections leave for the host: where one of these fails, or a copy that the compute queue waits
// for, the step fails for all of them, and can be taken again.
//
// Tokens of a prompt (Sequence::begin_prompt) attend exactly: each to all rows up to its own,
// wherever they lie; rows on the host are streamed through device memory tile by tile.
// RuntimeOptions::prompts can say that they select instead. Outputs are the same bits however a
// prompt is cut into pieces. If a prompt was not announced, only its first pieces of several tokens
// count as one prompt, up to the first step of one token, or to begin_prompt(0): announce it, or
// later bits depend on how it is cut.
//
// Other tokens attend to the rows that the policy selects. Several of them are a draft: they are
// taken one after the other, and accepted tokens have the bits of decoding token by token. Until an
// index is built they attend exactly, or wait for it (RuntimeOptions::until_ready).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "terrace/core/ids.hpp"
#include "terrace/core/ops.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace {

class Runtime;
class Sequence;
struct KvView;

/// A sequence that takes part in a step, and with how many tokens.
struct StepMember {
  Sequence* sequence = nullptr;
  std::size_t tokens = 1;
};

struct StepOptions {
  /// The type of queries and outputs that the layers will bring (StepTensors::dtype). Memory to
  /// convert them is reserved when the step begins, while rows can still be evicted for it. A layer
  /// that brings another type asks for memory by itself, and fails if no memory is left.
  Dtype queries = Dtype::f32;
};

/// The tensors of one layer, all tokens of a step: those of the first sequence, then those of the
/// second. Device memory. The parts of a sequence that has failed are neither read nor written.
struct StepTensors {
  const void* query = nullptr;  ///< [tokens, query_heads, head_dim], post-RoPE
  KvTensors kv = {};            ///< [tokens], KV dtype; keys are post-RoPE
  /// [tokens, query_heads, head_dim] f32, if the policy needs it: SelectRequest::speculated_query.
  const float* speculated_query = nullptr;
  void* output = nullptr;  ///< out [tokens, query_heads, head_dim]; not over keys or values
  /// The type of queries and outputs. Ops compute in f32: f16 and bf16 are converted by an op
  /// before and after them, outputs rounded to the nearest, ties to even.
  Dtype dtype = Dtype::f32;
  /// [sequences], or none. The hints that the policy's traits ask for, for tokens of announced
  /// prompts. Host memory; read in the compute queue's order.
  std::span<const PromptHints> hints = {};
  // From one token to the next, in numbers; 0 = packed.
  std::size_t query_stride = 0;
  std::size_t output_stride = 0;
  std::size_t speculated_query_stride = 0;  ///< never 0 where there is a speculated_query
};

/// Threads  one at a time. The compute queue must outlive it, its sequences the step under way, and
///          no other call may be made on these until the step has ended. Steps of other sequences
///          may be under way at the same time, on this queue or another
class Step {
 public:
  /// Gives the step up if it has not ended: no sequence gets longer.
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// Begins a further step once the last one has ended, on the same queue and with the same
  /// options: as Runtime::begin_step(). Where no more sequences take part than before, it allocates
  /// nothing of its own.
  /// Errors   those of Runtime::begin_step(); invalid_argument: the last step has not ended
  [[nodiscard]] Status begin_next(std::span<const StepMember> members);

  /// Enqueues append, selection, fetch and attention of one layer, for all sequences that have not
  /// failed. Layers come in order.
  ///
  /// Order    work enqueued on the compute queue so far must produce the tensors, and work that is
  ///          enqueued later may write over them; their memory is there until end() or the step's
  ///          destruction, which waits. The output is written in the queue's order
  /// Errors   invalid_argument: not the layer's turn, a tensor that is missing or not aligned,
  ///          tokens or heads that overlap, an output over queries; then nothing is enqueued, and
  ///          the layer can be given again. Errors of work that the sequences share: all that
  ///          comes after it says the same, and the step can only be given up
  [[nodiscard]] Status attend(LayerId layer, const StepTensors& tensors);

  /// As attend(), but without attention, for an engine with its own kernel: `views` [sequences] say
  /// what each sequence's token attends to; the view of a failed sequence stays as it is.
  /// The rows are read by work that is enqueued on the compute queue before the step's next call.
  ///
  /// Errors   as attend(), but no output is asked for; invalid_argument: a sequence with several
  ///          tokens; unsupported: the policy needs a logit bias or pseudo-entries, which a plain
  ///          view cannot carry. status() is not_ready where a token attends to rows that lie on
  ///          the host alone, because an index is not built yet or a prompt comes
  [[nodiscard]] Status gather(LayerId layer, const StepTensors& tensors, std::span<KvView> views);

  /// Enqueues the storing of one layer's rows alone, where the engine has computed the attention of
  /// a prompt: its pieces alone, of policies that retrieve. Queries and output are not looked at.
  ///
  /// Errors   as attend(); invalid_argument: tokens that select; unsupported: a retention policy,
  ///          which goes by queries
  [[nodiscard]] Status append(LayerId layer, const StepTensors& tensors);

  /// Ends the step, once all layers are enqueued: updates the caches while the device computes,
  /// waits until rows are on the host and compute is done. Each sequence that has not failed gets
  /// longer by its tokens; failed sequences are idle at their old length.
  ///
  /// Errors   invalid_argument: not all layers were attended; else the step has been given up:
  ///          those of work that the sequences share. status() gives the failure of a sequence
  [[nodiscard]] Status end();

  /// Ends the step as end(), and keeps only the first `accepted[i]` of each sequence's tokens: the
  /// rejected tokens of a draft are dropped, as if they had never been.
  ///
  /// Errors   those of end(); invalid_argument: another count than sequences(), or more than a
  ///          sequence's tokens
  [[nodiscard]] Status end(std::span<const std::size_t> accepted);

  /// Returns the failure of a sequence, by its place in the batch: out_of_memory, not_ready, or the
  /// first error of its work. A sequence whose work does not quiesce within the deadline is lost. A
  /// sequence whose prompt was kept in part, and whose window then found no room, has kept its
  /// tokens and is paused.
  [[nodiscard]] const Status& status(std::size_t sequence) const noexcept;

  [[nodiscard]] std::size_t sequences() const noexcept;

 private:
  friend class Runtime;
  class State;
  explicit Step(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace terrace
