// One sequence's KV memory over the tiers.
//
// Positions [0, length) lie each in exactly one of
//   sinks [0, sinks.end) | middle [sinks.end, window.begin) | window [window.begin, length).
// Sinks and window are in device memory. The middle is on the host; some of its blocks may also lie
// in device memory, as cached copies or because placement has not had to evict them. Every row is
// written to the host as it is appended, so a row that leaves the window is not copied.
//
// States and calls:
//   idle       begin_prompt, truncate, pause, fork, read_rows; Runtime::begin_step
//   step       calls on the Step; its end, or its destruction -> idle
//   paused     resume -> idle
//   lost       only destruction: a copy did not end within the deadline
// A step that fails leaves the sequence idle at its old length: the step can be taken again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "terrace/core/ids.hpp"
#include "terrace/core/queue.hpp"
#include "terrace/runtime/counters.hpp"
#include "terrace/runtime/prefix.hpp"
#include "terrace/runtime/sequence_data.hpp"

namespace terrace {

class RuntimeState;
class SequenceState;

/// 1 is not used.
enum class SequencePhase : std::uint8_t { idle = 0, step = 2, paused = 3, lost = 4 };

/// Threads  one thread at a time. A compute queue must outlive the step it is used in, and a
///          sequence that is lost in it: closing a lost sequence waits until the queue is quiesced
class Sequence {
 public:
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// Announces that the next `tokens` tokens are a prompt, or more of one, that comes in steps
  /// (Runtime::begin_step) in pieces of any size. Its tokens attend exactly, and are indexed
  /// together: where there is memory, and no index is being built, each layer as soon as the step
  /// of the last piece has stored its rows, otherwise after that step. 0 ends a prompt that will
  /// not come whole: its tokens so far are indexed. truncate() ends it, too. A step brings no more
  /// tokens than the prompt lacks.
  ///
  /// Errors   invalid_argument: the sequence is not idle, or would get too long; those of indexing
  ///          present tokens, before a prompt begins or where it ends: out_of_memory, not_ready.
  ///          After an error, a new prompt has not begun; a prompt that was to end has ended, and
  ///          is indexed later
  [[nodiscard]] Status begin_prompt(std::size_t tokens);

  /// Whether the next step would wait for no index to be built.
  [[nodiscard]] bool index_ready() const;
  /// Waits until indexes are built, and the decision of retention that is due is made. Errors:
  /// not_ready: past the deadline; those of building and deciding, which are tried again.
  [[nodiscard]] Status await_indexes();

  /// Takes the tokens from `length` on back. Tokens that were indexed together with some of them
  /// are indexed again: nothing that stands for the tokens left remembers those taken back.
  ///
  /// Errors   invalid_argument: not idle, or shorter than `length`; out_of_memory for the decision
  ///          of retention that is due, or for the window; phase() and length() say
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

  /// Keeps the first tokens of the sequence as a prefix that others find
  /// (Runtime::open_sequence), also in later processes: rows of whole chunks that the store lacks,
  /// and the indexes at their end. Where the sequence began with a part of them that had no
  /// indexes, the indexes of that part, too: others go on from there. Indexes of fewer tokens than
  /// length() are those of a fork that is cut, as far as there is memory for it.
  ///
  /// Order    returns when all of it is in the store
  /// Errors   unsupported: prefixes are not kept (RuntimeOptions::prefixes); invalid_argument: not
  ///          idle, more tokens than length(), or hashes that do not fit chunks; those of the
  ///          store: out_of_memory where it is full. The sequence is as before, and chunks that
  ///          were written stay
  [[nodiscard]] Result<PublishReport> publish(const PrefixQuery& query);

  /// Returns how many tokens, from the front, have rows that can be had: length(), or fewer after a
  /// call or a step that could not read rows from the store below the host (corrupt, io_error,
  /// invalid_argument: no such page). The sequence goes on from there: truncate() to so many
  /// tokens, and give the rest again.
  [[nodiscard]] std::size_t readable_tokens() const;

  /// Copies rows of a KV head, each from the tier that owns it: device for sinks and window, host
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

  /// Whether steps need queries that the model speculates (StepTensors::speculated_query).
  [[nodiscard]] bool needs_speculated_query() const noexcept;

  /// Tokens each layer's cache can hold, all KV heads; 0 without one, or before the first prompt.
  [[nodiscard]] std::size_t cache_capacity_tokens() const noexcept;

  [[nodiscard]] StepSelection selection(LayerId layer) const noexcept;
  /// Returns the entries of a KV head; no entries before the first decision.
  [[nodiscard]] RetainedEntries entries(LayerId layer, HeadId head) const noexcept;
  /// Returns the work that retention has done, and the number of entries.
  [[nodiscard]] RetentionReport retention() const;
  [[nodiscard]] SequenceCounters counters() const noexcept;
  void reset_counters() noexcept;

  /// Waits for all index building, then reports it. Errors: those of the building;
  /// invalid_argument: a step is under way.
  [[nodiscard]] Result<ClusteringReport> clustering();

 private:
  friend class Runtime;
  friend SequenceState& state_of(Sequence& sequence) noexcept;
  explicit Sequence(std::unique_ptr<SequenceState> state);
  std::unique_ptr<SequenceState> state_;
};

}  // namespace terrace
