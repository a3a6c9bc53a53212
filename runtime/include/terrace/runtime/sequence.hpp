// One sequence's KV memory over the tiers.
//
// Positions [0, length) lie each in exactly one of
//   sinks [0, sinks.end) | middle [sinks.end, window.begin) | window [window.begin, length).
// Sinks and window are in device memory. The middle is on the host; some of its blocks may also lie
// in device memory, as cached copies or because placement has not had to give them up. Every row is
// written to the host as it is appended, so leaving the window moves nothing.
//
// States and calls:
//   idle       begin_prefill, begin_step, truncate, pause, fork, read_rows, counters
//   prefill    append and finish per layer, in layer order; end_prefill, abandon_prefill -> idle
//   step       attend or gather per layer, in layer order; end_step, abandon_step -> idle
//   paused     resume -> idle
//   lost       only destruction: end_prefill failed, rows are missing
// All layers of a step, or of a prefill, are enqueued on one compute queue. When attend or gather
// fails, abandon_step() gives the step up; when end_step fails it has done so. Either way the
// sequence is idle at its old length, and begin_step may be called again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "terrace/core/ids.hpp"
#include "terrace/core/queue.hpp"
#include "terrace/runtime/counters.hpp"
#include "terrace/runtime/sequence_data.hpp"

namespace terrace {

class RuntimeState;
class SequenceState;

enum class SequencePhase : std::uint8_t { idle, prefill, step, paused, lost };

/// Threads  one thread at a time. A compute queue must outlive the step or prefill it is used in,
///          and a sequence that is lost in it: closing that one waits until the queue is at rest
class Sequence {
 public:
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// Announces `tokens` more tokens, behind what is there, and waits for indexes that are still
  /// being built. Layers are given one after the other; begin_prompt() takes a prompt piece by
  /// piece through all layers.
  ///
  /// Errors   invalid_argument: zero tokens, or a prompt that comes in steps is not whole;
  /// out_of_memory: host or device memory too small;
  ///          those of building an earlier prompt's index. The sequence is as before
  [[nodiscard]] Status begin_prefill(std::size_t tokens);

  /// Announces that the next `tokens` tokens are a prompt, or more of one, that comes in steps
  /// (Runtime::begin_step) in pieces of any size. Its tokens attend exactly, and are indexed
  /// together once all are there. 0 ends a prompt that will not come whole: what there is of it is
  /// indexed. truncate() ends it, too. A step brings no more tokens than the prompt lacks.
  ///
  /// Errors   invalid_argument: the sequence is not idle, or would get too long; those of indexing
  ///          what is there, before a prompt begins or where it ends: out_of_memory, not_ready. A
  ///          prompt that was to begin has not; one that was to end has, and is indexed later
  [[nodiscard]] Status begin_prompt(std::size_t tokens);

  /// Whether the next step would wait for no index to be built.
  [[nodiscard]] bool index_ready() const;
  /// Waits until indexes are built. Errors: not_ready: past the deadline; those of building, which
  /// is tried again.
  [[nodiscard]] Status await_indexes();

  /// Enqueues the storing of a piece of a layer's rows.
  ///
  /// Order    work enqueued on `compute` so far must produce the piece; its memory must stay as
  ///          it is until the returned ticket is done. The queue must outlive the prefill
  [[nodiscard]] Result<Ticket> append(LayerId layer, const PromptPiece& piece, Queue& compute);

  /// Ends a layer's prefill: starts building its index behind `compute`'s further work.
  [[nodiscard]] Status finish(LayerId layer, Queue& compute);

  /// Ends the prefill and waits until all rows have reached the host (indexes may still be built).
  [[nodiscard]] Status end_prefill();

  /// Gives a prefill up half-way, for an embedder whose own work failed or whose request is gone:
  /// waits for what is enqueued, clears failed queues (the embedder's compute queue too), gives
  /// back the memory that the prompt took, and is idle at the old length, with the index as it was.
  /// begin_prefill() may be called again; its outputs are the same bits as if the first had not
  /// been. Cached copies are forgotten.
  ///
  /// Errors   invalid_argument: no prefill; else phase() says how far it came: paused where the
  ///          window could not be loaded again, lost where the queues do not come to rest
  [[nodiscard]] Status abandon_prefill();

  /// Starts the step of the token at position length(): makes room for it.
  [[nodiscard]] Status begin_step();

  /// Enqueues append, selection, fetch and attention of one layer. `output` [query_heads,
  /// head_dim] f32, device memory, is written in `compute`'s order. The input's memory stays as it
  /// is, and the queue must be there, until end_step() or abandon_step(), or until the sequence
  /// is closed, which waits.
  [[nodiscard]] Status attend(LayerId layer, const StepInput& input, float* output, Queue& compute);

  /// The same without attention. The view points to memory of the sequence's, until its next call.
  /// Errors: unsupported when the policy needs a logit bias or pseudo-entries, which a plain view
  /// cannot carry; not_ready when the step attends to rows that lie on the host alone, because an
  /// index is not built yet (index_ready) or a prompt comes.
  [[nodiscard]] Result<KvView> gather(LayerId layer, const StepInput& input, Queue& compute);

  /// Ends the step: cache upkeep, refills, and length() grows by one. Call it when all layers are
  /// enqueued; it runs beside their compute and returns when the token's rows are on the host.
  /// Errors: the first error of the step's work; the length is then unchanged.
  [[nodiscard]] Status end_step();

  /// Gives a step up half-way, for an embedder whose own work failed: waits for what is enqueued,
  /// clears failed queues (the embedder's compute queue too), and is idle at the old length.
  [[nodiscard]] Status abandon_step();

  /// Takes the tokens from `length` on back. Tokens that were indexed together with some of them
  /// are indexed again: nothing that stands for the tokens left remembers those taken back.
  ///
  /// Errors   invalid_argument: not idle, or shorter than `length`; else phase() and length() say
  ///          how far it came: as before, or truncated and paused, or lost where a copy does not
  ///          end
  [[nodiscard]] Status truncate(std::size_t length);

  /// Gives up all device memory; resume() brings back what a step needs.
  /// Errors: unsupported: a policy that keeps everything (full) has no copy on the host;
  /// invalid_argument: not idle; not_ready: try again. The sequence is as before.
  [[nodiscard]] Status pause();
  [[nodiscard]] Status resume();

  /// Returns a sequence with the same tokens. Full host blocks are shared; of a policy that keeps
  /// everything (full), which has none, the device's blocks are copied.
  ///
  /// Errors   invalid_argument: not idle; out_of_memory; not_ready: no copy ends in time; those of
  ///          building an index. This sequence is as before
  [[nodiscard]] Result<std::unique_ptr<Sequence>> fork();

  /// Copies rows of a KV head, each out of the tier that owns it: device for sinks and window, host
  /// for the middle.
  ///
  /// Shapes   positions [n], in any order, also twice; target [n, row_bytes]
  /// Memory   both host
  /// Order    returns when the rows are there
  /// Errors   invalid_argument: not idle, no such layer, head or position, a token that retention
  ///          has dropped, merged, or given values of others, a target of another size: nothing
  ///          was read; out_of_memory: of the host; not_ready
  [[nodiscard]] Status read_rows(LayerId layer, HeadId head,
                                 std::span<const std::uint32_t> positions,
                                 std::span<std::byte> target);

  /// The number that errors and observers call it by, counted in its runtime.
  [[nodiscard]] SequenceId id() const noexcept;
  [[nodiscard]] SequencePhase phase() const noexcept;
  [[nodiscard]] std::size_t length() const noexcept;

  /// Returns where the ranges lie for a token at position length().
  [[nodiscard]] TokenRange sinks() const noexcept;
  [[nodiscard]] TokenRange window() const noexcept;
  /// The budget of that token, and the rows that it selects; 0 before the first step.
  [[nodiscard]] std::size_t budget_tokens() const noexcept;
  [[nodiscard]] std::size_t selected_tokens() const noexcept;

  /// Returns how many last positions of a prompt need queries (PromptHints); 0 = none.
  [[nodiscard]] std::size_t query_window_tokens() const noexcept;

  /// Whether hints need keys before RoPE: of prompts or, for retention, of all tokens.
  [[nodiscard]] bool needs_pre_rope_keys() const noexcept;

  /// Whether steps need queries that the model speculates (StepInput::speculated_query).
  [[nodiscard]] bool needs_speculated_query() const noexcept;

  /// Tokens each layer's cache can hold, all KV heads; 0 without one, or before the first prefill.
  [[nodiscard]] std::size_t cache_capacity_tokens() const noexcept;

  [[nodiscard]] StepSelection selection(LayerId layer) const noexcept;
  /// Returns the entries of a KV head; none where nothing was decided on.
  [[nodiscard]] RetainedEntries entries(LayerId layer, HeadId head) const noexcept;
  /// Returns what retention has done, and how many entries there are.
  [[nodiscard]] RetentionReport retention() const;
  [[nodiscard]] SequenceCounters counters() const noexcept;
  void reset_counters() noexcept;

  /// Waits for all index building, then reports it. Errors: those of the building;
  /// invalid_argument: between begin_prefill() and end_prefill().
  [[nodiscard]] Result<ClusteringReport> clustering();

 private:
  friend class Runtime;
  friend SequenceState& state_of(Sequence& sequence) noexcept;
  explicit Sequence(std::unique_ptr<SequenceState> state);
  std::unique_ptr<SequenceState> state_;
};

}  // namespace terrace
