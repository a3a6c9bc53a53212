// All that parts of a sequence share: whom they ask, what its length and its budget are, where they
// count.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "journal.hpp"
#include "lanes.hpp"
#include "runtime_state.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/policies/budget.hpp"
#include "terrace/runtime/counters.hpp"
#include "terrace/runtime/sequence.hpp"

namespace terrace {

/// Positions are 32-bit in selections.
inline constexpr std::size_t max_positions = std::size_t{1} << 31;

/// A budget, and how it is dealt out, once a length has said how large it is.
struct ResolvedBudget {
  bool budget_resolved = false;
  std::size_t budget_tokens = 0;
  std::size_t budget_context = 0;  ///< tokens that the budget is for
  policies::BudgetSplit split;
  std::size_t list_room = 0;  ///< rows that a list has room for
};

/// The progress of a sequence: a fork begins with a copy of it.
struct SequenceCourse : ResolvedBudget {
  SequencePhase phase = SequencePhase::idle;
  std::size_t length = 0;
  TokenRange prompt;             ///< the last prompt, which comes in steps, or came
  bool prompt_comes = false;     ///< its tokens are not all there, or not indexed
  bool prompt_selects = false;   ///< its tokens select among the tokens before it
  bool prompt_given = false;     ///< a prompt was given, announced or not
  bool has_decoded = false;      ///< a token outside of prompts has been attended
  bool is_behind_prompt = true;  ///< no token was decoded since the last prompt
  std::size_t retained_end = 0;  ///< tokens before it are sinks, or retention has decided on them
  std::size_t flushes_from = 0;  ///< no flush is due before that length
};

struct SequenceContext : SequenceCourse {
  SequenceContext(RuntimeState& shared, SequenceState& self, Lanes queues);

  RuntimeState& runtime;
  SequenceState& owner;  ///< under which name device memory is asked for
  const SequenceId id;
  Lanes lanes;
  Journal journal;
  SequenceCounters counters;
  Queue* compute = nullptr;       ///< the embedder's, as long as work of the sequence may be in it
  Ticket computed;                ///< the step's compute, as far as it is known
  std::vector<Buffer> abandoned;  ///< that copies past their deadline may still use
  std::size_t flush_end = 0;      ///< where the tokens end that retention decides on; 0 = on none

  [[nodiscard]] Backend& backend() const noexcept { return *runtime.backend; }
  [[nodiscard]] const RuntimeOptions& options() const noexcept { return runtime.options; }
  [[nodiscard]] const RetrievalPolicy& policy() const noexcept { return *runtime.policy; }
  [[nodiscard]] const RetrievalTraits& traits() const noexcept { return runtime.policy->traits(); }
  [[nodiscard]] const IndexLayout& layout() const noexcept { return runtime.index_layout; }
  [[nodiscard]] const KvShape& shape() const noexcept { return runtime.shape(); }
  [[nodiscard]] const Clock& clock() const noexcept { return runtime.backend->clock(); }
  [[nodiscard]] Duration deadline() const noexcept { return runtime.options.deadline; }
  [[nodiscard]] std::size_t block_tokens() const noexcept { return runtime.options.block_tokens; }

  [[nodiscard]] bool selects() const noexcept { return traits().selects; }
  /// Whether entries are made of tokens that leave the window.
  [[nodiscard]] bool retains() const noexcept { return runtime.retention != nullptr; }
  /// Whether tokens that leave the window without an entry are gone.
  [[nodiscard]] bool drops() const noexcept { return runtime.drops(); }
  /// Whether these tokens stay, to be selected.
  [[nodiscard]] bool holds() const noexcept { return runtime.holds(); }
  [[nodiscard]] bool keeps_everything() const noexcept { return traits().keeps_everything; }
  [[nodiscard]] bool is_dense(std::size_t layer) const noexcept {
    return layer < runtime.options.dense_layers;
  }
  [[nodiscard]] std::size_t lists() const noexcept { return list_count(shape(), traits().lists); }
  /// Lists of one KV head.
  [[nodiscard]] std::size_t group() const noexcept { return lists() / shape().kv_heads; }
  /// Rows that a list has room for.
  [[nodiscard]] std::size_t list_rows() const noexcept { return list_room; }

  /// How the budget of the token at `position` is dealt out.
  [[nodiscard]] policies::BudgetSplit split_at(std::size_t position) const noexcept {
    return runtime.budget_grows() ? runtime.grown_split(position) : split;
  }

  /// Entries of a KV head that retention may keep in a layer, at most.
  [[nodiscard]] std::size_t most_kept() const noexcept;

  // Ranges for the token at `position`.
  [[nodiscard]] TokenRange sinks_at(std::size_t position) const noexcept;
  [[nodiscard]] TokenRange window_at(std::size_t position) const noexcept;

  /// Begin of the tokens after the sinks that the token at `position` attends to one by one, and
  /// not as entries.
  [[nodiscard]] std::size_t undecided_from(std::size_t position) const noexcept;

  /// Whether the next token belongs to a prompt that has been announced.
  [[nodiscard]] bool in_prompt() const noexcept { return prompt_comes && length < prompt.end; }

  /// Whether there are tokens of a prompt, not indexed yet, that select of those before the prompt.
  [[nodiscard]] bool in_selecting_prompt() const noexcept { return prompt_selects && prompt_comes; }
  /// Whether a prompt is there that is not indexed yet.
  [[nodiscard]] bool prompt_waits() const noexcept {
    return prompt_comes && phase == SequencePhase::idle && length >= prompt.end;
  }

  /// Errors: invalid_argument: the sequence is in another phase.
  [[nodiscard]] Status require(SequencePhase wanted) const;
  /// Errors: invalid_argument: too long with so many tokens more.
  [[nodiscard]] Status check_length(std::size_t tokens) const;
  /// Errors: invalid_argument: another layer comes next, or the layers before it came on another
  /// queue, or the queue is of another backend.
  [[nodiscard]] Status check_layer(LayerId layer, std::size_t next, Queue& queue) const;

  /// Returns what a call has done. Its error names the call and the sequence.
  template <typename T>
  [[nodiscard]] Result<T> named(std::string_view call, Result<T> done) const {
    if (done) [[likely]]
      return done;
    return tl::unexpected(named(call, done.error()));
  }
  [[nodiscard]] Error named(std::string_view call, const Error& error) const;

  void resolve_budget(std::size_t context);
  void forget_budget() noexcept { set_budget({}); }
  void set_budget(const ResolvedBudget& budget) noexcept {
    static_cast<ResolvedBudget&>(*this) = budget;
  }

  /// Waits until the deadline, and counts how long.
  Status await(WaitReason reason, const Ticket& ticket) {
    return await(reason, ticket, deadline());
  }
  Status await(WaitReason reason, const Ticket& ticket, Duration patience);
  void count_wait(WaitReason reason, TimePoint begin) noexcept {
    counters.waits[static_cast<std::size_t>(reason)] += clock().now() - begin;
  }

  /// Counts the time of cache upkeep since `begin`. Compute that ends before the upkeep is taken to
  /// hide nothing of it.
  void count_upkeep(TimePoint begin);

  /// Tries `reserve` again after each block that some sequence could spare. Spilling may evict this
  /// sequence's blocks: `reserve` must place blocks last, after all calls that can fail.
  Status reclaiming(FunctionRef<Status()> reserve) const;

  /// Copies at once and waits for it. Past the deadline the context keeps `on_host`, the memory of
  /// the copy's host side, for a copy that is still under way.
  Status copy_now(Queue& queue, Phase why, std::span<const CopyExtent> extents, Buffer& on_host);
};

}  // namespace terrace
