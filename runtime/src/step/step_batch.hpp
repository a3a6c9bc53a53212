// The ops of a step, for all its participants at once: append, select, resolve, fetch, attend.
#pragma once

#include <span>
#include <vector>

#include "participant.hpp"

namespace terrace {

/// Threads  one at a time
class StepBatch {
 public:
  struct Member {
    Participant* participant = nullptr;
    Status status = {};  ///< the member's failure; other members go on without it
  };

  StepBatch(RuntimeState& runtime, LentStepMemory& memory) noexcept
      : runtime_(runtime), memory_(memory), tiles_(runtime.plan, memory) {}

  /// A new step begins, of the members that are added. Further steps of as many members allocate
  /// nothing.
  void clear() noexcept { members_.clear(); }
  /// Begins the step of a participant with so many tokens, and adds it. Its mutex must be held.
  /// Errors: those of Participant::begin(), and it is no member.
  Status begin(Participant& participant, std::size_t tokens);

  [[nodiscard]] std::span<const Member> members() const noexcept { return members_; }

  /// Errors: invalid_argument: it is not the layer's turn, or an input lacks something; what the
  /// members share has failed before.
  [[nodiscard]] Status check(LayerId layer, std::span<const StepInput> inputs,
                             Queue& compute) const;
  /// Enqueues a layer up to the rows that it attends to. `inputs` are the members'.
  /// Errors: those of check(), and nothing is enqueued; those of ops, which all members share.
  Status prepare(LayerId layer, std::span<const StepInput> inputs, Queue& compute);
  /// The engine computes attention of the next layer. Members fail whose rows are not all here.
  void leave_attention_to_engine();
  /// No member attends in the next layer. Errors: invalid_argument: a member that selects.
  [[nodiscard]] Status leave_attention_out();
  /// Enqueues a layer with its attention; `outputs` are the members'. Errors: as prepare().
  Status attend(LayerId layer, std::span<const StepInput> inputs,
                std::span<const StepOutput> outputs, Queue& compute);
  /// Ends the step: of each member that has not failed the first `accepted` tokens are kept. The
  /// steps of those that failed are given up.
  ///
  /// Threads  holds each sequence's mutex in turn
  void end(std::span<const std::size_t> accepted);
  /// Gives the step of all members up.
  void give_up();

  /// Returns the failure of work that all members share: with one the step must be given up.
  [[nodiscard]] const Status& failure() const noexcept { return failure_; }
  /// Returns `done`, and remembers what failed.
  Status sharing(Status done);
  /// Outputs of the members are there when `converted` is done, not before.
  void note_converted(Ticket converted);

 private:
  /// Calls for each member that has not failed, and notes what fails there.
  template <typename Call>
  void for_each_member(Call call);
  /// Begins a layer, and stores its new rows.
  Status open(LayerId layer, std::span<const StepInput> inputs, Queue& compute);
  Result<Ticket> store(Queue& compute);
  /// Selects for the token of that number in each member.
  Status select(std::size_t number, Queue& compute);
  void list_selecting(std::size_t number, Queue& compute);
  /// Whether it is so of any member that selects.
  [[nodiscard]] bool any_selecting(bool (Participant::*is_so)() const) const;
  /// Promotes selected rows from the store to the host, those of all members together. Nothing is
  /// enqueued where no row is below the host.
  Status bring_selected(Queue& compute);
  /// Promotes selected rows of these members, which all wait for them. Members fail whose rows
  /// cannot be read. Errors: out_of_memory where some still lack rows.
  Status bring(std::span<Member* const> members);
  /// Fetches selected rows of those members that lack none.
  Status fetch(std::span<Member* const> members, Queue& compute);
  /// Promotes and fetches rows of members that found no room together with the others: each needs
  /// room for its own alone.
  Status fetch_one_by_one(Queue& compute);
  Status attend_selected(std::size_t number, std::span<const StepOutput> outputs, Queue& compute);
  /// How many tokens a member has, at most, that select one by one.
  [[nodiscard]] std::size_t most_single_tokens() const noexcept;
  /// Sends rows and selections of all members to the host, where enough layers have some. Errors:
  /// those of the step's queue, which all members share.
  Status close_layer();
  void let_tensors_go(Queue& compute);
  Status enqueue(LayerId layer, std::span<const StepInput> inputs,
                 std::span<const StepOutput> outputs, Queue& compute);
  Status enqueue_without_attention(LayerId layer, std::span<const StepInput> inputs,
                                   Queue& compute);
  void abandon(Member& member, Duration patience);
  void end_step() noexcept;

  Status attend_exactly(std::span<const StepOutput> outputs, Queue& compute);

  RuntimeState& runtime_;
  LentStepMemory& memory_;
  std::vector<Member> members_;
  SequenceRows::Company company_;
  Status failure_;
  TileStream tiles_;
  Ticket stored_;    ///< the layer's new rows are where they belong in device memory
  Ticket selected_;  ///< so is what its tokens selected

  // Arguments of a layer's ops, kept so that the next layer allocates nothing.
  std::vector<StoreRows> stores_;
  std::vector<Member*> selecting_;
  std::vector<SelectRequest> selects_;
  std::vector<ResolveRows> resolves_;
  std::vector<CopyExtent> selections_;
  std::vector<Member*> awaiting_;
  std::vector<LayerRows::Arrival> arrivals_;
  std::vector<FetchRows> fetches_;
  std::vector<CopyExtent> leaving_;
  std::vector<DecodeAttention> attentions_;
};

}  // namespace terrace
