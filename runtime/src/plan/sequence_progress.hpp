// The progress of a sequence: its phase, its length, its prompt, its budget, and how far retention
// has decided. All that changes it goes by the verbs below; everybody else reads.
//
//   idle --begin_step--> step --end_step--> idle --pause--> paused --resume--> idle
//   any  --lose-->       lost
#pragma once

#include <cstddef>

#include "runtime_plan.hpp"
#include "terrace/core/ids.hpp"
#include "terrace/policies/budget.hpp"
#include "terrace/runtime/sequence.hpp"

namespace terrace {

/// A budget, and how it is dealt out, once a length has said how large it is.
struct SequenceBudget {
  bool resolved = false;
  std::size_t tokens = 0;
  std::size_t context = 0;  ///< tokens that the budget is for
  policies::BudgetSplit split = {};
  std::size_t list_rows = 0;  ///< rows that a list has room for
};

/// Threads  one at a time
class SequenceProgress {
 public:
  explicit SequenceProgress(const RuntimePlan& plan) noexcept : plan_(plan) {}

  [[nodiscard]] SequencePhase phase() const noexcept { return now_.phase; }
  [[nodiscard]] std::size_t length() const noexcept { return now_.length; }

  // Ranges for the token at `position`.
  [[nodiscard]] TokenRange sinks_at(std::size_t position) const noexcept;
  [[nodiscard]] TokenRange window_at(std::size_t position) const noexcept;
  /// Begin of the tokens after the sinks that the token at `position` attends to one by one, and
  /// not as entries.
  [[nodiscard]] std::size_t undecided_from(std::size_t position) const noexcept;

  /// Errors: invalid_argument: the sequence is in another phase.
  [[nodiscard]] Status require(SequencePhase wanted) const;
  /// Errors: invalid_argument: too long with so many tokens more.
  [[nodiscard]] Status check_length(std::size_t tokens) const;

  // The budget.

  [[nodiscard]] const SequenceBudget& budget() const noexcept { return now_.budget; }
  [[nodiscard]] const policies::BudgetSplit& split() const noexcept { return now_.budget.split; }
  /// Rows that a list has room for.
  [[nodiscard]] std::size_t list_rows() const noexcept { return now_.budget.list_rows; }
  /// How the budget of the token at `position` is dealt out.
  [[nodiscard]] policies::BudgetSplit split_at(std::size_t position) const noexcept {
    return plan_.budget_grows() ? plan_.grown_split(position) : split();
  }
  /// Entries of a KV head that retention may keep in a layer, at most.
  [[nodiscard]] std::size_t most_kept() const noexcept { return plan_.most_kept(split().kept); }

  /// Has a budget for a sequence of so many tokens, unless there is one.
  void resolve_budget(std::size_t context);
  void forget_budget() noexcept { now_.budget = {}; }
  /// Tokens that decided on a budget do not come: it is again what it was.
  void restore_budget(const SequenceBudget& before) noexcept { now_.budget = before; }
  /// Lists get room for so many rows, and some more where budgets grow.
  void grow_lists(std::size_t rows) noexcept { now_.budget.list_rows = plan_.room_for(rows); }

  // The prompt: the last one that was announced, or that came unannounced.

  [[nodiscard]] const TokenRange& prompt() const noexcept { return now_.prompt; }
  /// Whether some of its tokens are not there, or not indexed.
  [[nodiscard]] bool prompt_comes() const noexcept { return now_.prompt_comes; }
  /// Whether a prompt was given, announced or not.
  [[nodiscard]] bool prompt_given() const noexcept { return now_.prompt_given; }
  /// Whether the next token belongs to a prompt that has been announced.
  [[nodiscard]] bool in_prompt() const noexcept {
    return prompt_comes() && length() < prompt().end;
  }
  /// Whether a prompt is there that is not indexed yet.
  [[nodiscard]] bool prompt_waits() const noexcept {
    return prompt_comes() && phase() == SequencePhase::idle && length() >= prompt().end;
  }
  /// Whether the prompt's tokens select among the tokens before it.
  [[nodiscard]] bool prompt_selects() const noexcept { return now_.prompt_selects; }
  /// Whether there are tokens of a prompt, not indexed yet, that select of those before the prompt.
  [[nodiscard]] bool in_selecting_prompt() const noexcept {
    return prompt_selects() && prompt_comes();
  }
  /// Whether a token outside of prompts has been attended.
  [[nodiscard]] bool has_decoded() const noexcept { return now_.has_decoded; }
  /// Whether no token was decoded since the last prompt.
  [[nodiscard]] bool is_behind_prompt() const noexcept { return now_.is_behind_prompt; }

  /// So many tokens come that are a prompt, or more of the prompt that is under way.
  void announce_prompt(std::size_t tokens);
  /// No more tokens of the prompt come. Returns whether some did that are to be indexed.
  bool cut_prompt();
  void note_prompt_selects(bool selects) noexcept { now_.prompt_selects = selects; }
  void note_prompt_indexed() noexcept { now_.prompt_comes = false; }

  // Steps, and what is between them.

  void begin_step() noexcept;
  /// The step's tokens that are accepted. Within a step some can be taken back.
  void add_tokens(std::size_t tokens) noexcept;
  void take_back_tokens(std::size_t tokens) noexcept;
  /// Tokens were accepted, of a prompt or not.
  void note_accepted(bool of_prompt) noexcept;
  void end_step() noexcept;
  void cut(std::size_t length) noexcept;
  void pause() noexcept;
  void resume() noexcept;
  /// Work that has no end may still use the sequence's memory.
  void lose() noexcept { now_.phase = SequencePhase::lost; }

  /// A sequence that is new begins with the tokens of a stored prefix, paused. Those after the
  /// first `indexed` are a prompt that is to be indexed.
  void begin_with_prefix(std::size_t tokens, std::size_t indexed);
  /// A sequence that is new goes on as another, paused.
  void begin_as(const SequenceProgress& other) noexcept;

  // Retention.

  /// Tokens before it are sinks, or retention has decided on them.
  [[nodiscard]] std::size_t retained_end() const noexcept { return now_.retained_end; }
  /// Where the tokens end that a flush under way decides on; 0 = none is.
  [[nodiscard]] std::size_t flush_end() const noexcept { return now_.flush_end; }
  /// No flush is due before that length.
  [[nodiscard]] std::size_t flushes_from() const noexcept { return now_.flushes_from; }

  void begin_flush(std::size_t end) noexcept { now_.flush_end = end; }
  /// A flush that was not decided is to come again.
  void end_flush(bool decided) noexcept;
  /// Decisions are undone, and flushes begin later.
  void forget_decisions() noexcept;

 private:
  struct State {
    SequencePhase phase = SequencePhase::idle;
    std::size_t length = 0;
    SequenceBudget budget;
    TokenRange prompt;
    bool prompt_comes = false;
    bool prompt_selects = false;
    bool prompt_given = false;
    bool has_decoded = false;
    bool is_behind_prompt = true;
    std::size_t retained_end = 0;
    std::size_t flush_end = 0;
    std::size_t flushes_from = 0;
  };
  /// Goes from one phase to another, with all that has to hold in between.
  void change_phase(SequencePhase from, SequencePhase to) noexcept;

  const RuntimePlan& plan_;
  State now_;
};

}  // namespace terrace
