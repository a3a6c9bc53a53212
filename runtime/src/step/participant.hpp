// A sequence's part in a step: what it gives the step's ops to do, layer by layer, and what it does
// with their results. The step enqueues the ops; between begin() and keep_up() the host waits for
// none of them.
#pragma once

#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "layer/step_input.hpp"
#include "sequence/sequence_parts.hpp"
#include "terrace/runtime/sequence.hpp"
#include "tile_stream.hpp"

namespace terrace {

class Participant {
 public:
  /// `call` is held by every call of the sequence.
  Participant(SequenceParts& parts, std::mutex& call) noexcept
      : parts_(parts),
        call_(call),
        plan_(parts.plan),
        progress_(parts.progress),
        work_(parts.work) {}

  /// Makes room for `tokens` tokens from the sequence's length on, and in `memory` for tiles where
  /// rows pass in tiles. The sequence's rows join those of the step. Errors: those of
  /// Step::status(), and the rows have not joined.
  Status begin(std::size_t tokens, LentStepMemory& memory, SequenceRows::Company& company);

  [[nodiscard]] SequenceRows& rows() const noexcept { return parts_.rows; }
  [[nodiscard]] const SequenceMemory& memory() const noexcept { return parts_.memory; }
  [[nodiscard]] SequenceWork& work() const noexcept { return work_; }

  // A layer, in this order.

  /// Errors: invalid_argument where it is not this layer's turn, or on another queue than before.
  Status check_turn(LayerId layer, const StepInput& input, Queue& compute) const;
  /// Lets changes of the cache take effect, and says what the token attends to.
  Status open_layer(LayerId layer, const StepInput& input, Queue& compute);
  /// Adds to `stores` how new rows get into device memory; rows not listed have no room there.
  void list_stores(std::vector<StoreRows>& stores) const;
  /// The new rows are in device memory, but for those that note_stored() sends to the host.
  Status note_stored(Ticket stored, Queue& compute);
  /// Whether the tokens attend to all rows up to their own, wherever these lie.
  [[nodiscard]] bool attends_exactly() const noexcept { return exact_; }
  Result<Ticket> attend_exactly(TileStream& tiles, const StepOutput& output, Ticket stored,
                                Queue& compute);

  // A token of the layer, in this order; tokens that do not attend exactly go one by one.

  /// Whether the tokens are of a prompt, announced or not.
  [[nodiscard]] bool is_prompt() const noexcept { return prompt_; }
  /// How many there are of these.
  [[nodiscard]] std::size_t single_tokens() const noexcept { return exact_ ? 0 : tokens_; }
  /// Has the index as it is for the token of that number.
  Status open_token(std::size_t number);
  [[nodiscard]] bool selects() const noexcept { return layer_->token().selected; }
  Result<SelectRequest> select(Queue& compute);
  [[nodiscard]] ResolveRows resolve() const noexcept { return parts_.workspace.resolve(*layer_); }
  void note_selected(Ticket selected) noexcept;

  // Rows that are selected and may lie below the host.

  /// Whether there are such rows. Then the next calls come before fetch(), in their order.
  [[nodiscard]] bool may_select_away() const noexcept { return layer_->rows.away_pages() > 0; }
  [[nodiscard]] CopyExtent selection_to_host() const noexcept { return to_host(layer_->token()); }
  /// Waits for `copied`, which brings the selection to the host.
  Status read_selection(Ticket copied);
  /// Keeps selected rows on the host that are there, and adds the blocks of the others.
  void list_arrivals(std::vector<LayerRows::Arrival>& arrivals);
  /// Blocks have been read, since `begin`. Where some lack memory, the others need not stay on the
  /// host. Errors: those of this member's arrivals.
  Status note_arrivals(std::span<const LayerRows::Arrival> arrivals, TimePoint begin);
  /// Whether the fetch lacks rows.
  [[nodiscard]] bool lacks_rows() const noexcept { return lacks_rows_; }
  [[nodiscard]] FetchRows fetch() const noexcept {
    return parts_.workspace.fetch(*layer_, selected_rows_);
  }
  void note_fetched(Ticket fetched) noexcept;
  [[nodiscard]] KvView view() const noexcept;
  Result<DecodeAttention> attention(const StepOutput& output, Queue& compute);
  void note_attended(Ticket attended) noexcept;
  /// Sends weights of attention to the host, where retention wants them.
  Status send_weights(Ticket attended);

  /// Whether the end of this layer's selection, or that of its attention, is waited for by other
  /// queues: close_layer() sends rows and selections, the cache's refills write over its slots.
  [[nodiscard]] bool sends_after_selection() const {
    return !plan_.keeps_everything() && !batch_ending_at(next_layer_ + 1).empty();
  }
  [[nodiscard]] bool refills_after_attention() const noexcept { return parts_.cache.joined(); }
  /// Whether the index's memory is written over as soon as this layer has selected.
  [[nodiscard]] bool streams_index() const { return parts_.indexes.room.device().streams(); }

  /// All tokens have selected. If enough layers have rows and selections for the host, adds the
  /// copies of these to `leaving`.
  void close_layer(std::vector<CopyExtent>& leaving);
  /// Has `offload` copy them after what the sequence has stored on the host by itself.
  Status order_copies(Queue& offload);
  /// The copies are enqueued.
  void note_leaving(Ticket copied) noexcept;
  /// The layer's work is enqueued: work on `compute` from now on may write over its tensors.
  Status let_tensors_go(Queue& compute);
  /// Errors: unsupported: the policy's selections need more than a KvView says.
  [[nodiscard]] static Status check_gathers(const RuntimePlan& plan);
  /// Errors: unsupported: the runtime has to see queries.
  [[nodiscard]] static Status check_appends(const RuntimePlan& plan);
  /// Errors: invalid_argument: the step's tokens select.
  [[nodiscard]] Status check_append() const;
  /// Errors: not_ready: the step attends to rows that lie on the host alone.
  [[nodiscard]] Status check_rows_are_here() const;
  /// Leaves attention to the engine, which has enqueued it when the next call comes.
  void leave_attention_to_engine() noexcept { gathers_ = true; }

  // The end.

  /// Looks after the cache, beside compute. All layers must be enqueued.
  Status keep_up();
  /// Counts a sample of the attention mass, where the step is one that is sampled.
  Status count_mass() { return parts_.mass.count(exact_); }
  /// Waits for compute, and keeps the first `accepted` tokens.
  ///
  /// Between steps nothing of the sequence's is read or written on the compute queue. On that lean,
  /// without a wait of their own: the tickets of compute, which are forgotten here, so that blocks,
  /// slots and cached copies are given away at once (Layer::pages_are_unread, Reclaimer,
  /// trim_rows); tables of pointers whose device copy is replaced as they grow (PointerTable);
  /// Workspace and lists of selections, replaced as they grow and shared by all layers; chunks of
  /// indexes, written over and trimmed (DeviceIndexes); and the memory that the step gives back to
  /// other steps, perhaps on another queue (LentStepMemory::give_back). A step that were to end
  /// before compute has to keep the tickets for each of these.
  Status conclude(std::size_t accepted, Duration patience);
  // Between steps.

  /// Prepares, beside the engine's work, the data that the next step reads.
  Status prepare_next();
  /// Starts the decision of retention that is due, unless more of a prompt may come.
  Status decide_if_due();
  /// Prepares a sequence before a prompt begins. Errors: those of indexing present tokens.
  Status prepare_prompt();
  /// No more tokens of the prompt will come.
  Status end_prompt();
  /// Gives the step up. Errors: not_ready; the sequence is lost then.
  Status abandon(Duration patience);

  /// The sequence's mutex: held while it begins a step and while it ends one, so that other
  /// sequences that look for device memory see neither half-way.
  [[nodiscard]] std::mutex& mutex() const noexcept { return call_; }

  /// Memory that work past its deadline may use, until the sequence is closed.
  [[nodiscard]] std::vector<Buffer>& abandoned_memory() const noexcept { return work_.abandoned; }
  /// Names the sequence whose step failed.
  [[nodiscard]] Status named(const Status& done) const { return work_.named("step", done); }

  [[nodiscard]] bool all_layers_done() const noexcept {
    return next_layer_ == parts_.layers.size();
  }

 private:
  /// Selected rows may leave the host from now on.
  void let_rows_go() noexcept;
  /// Begins the step, once it is known that so many tokens may come.
  Status begin_tokens(std::size_t tokens, LentStepMemory& memory);
  /// Whether the next tokens belong to a prompt, announced or not.
  [[nodiscard]] bool brings_prompt() const noexcept;
  /// Lets selections have as many rows as a budget that has grown. Errors: not_ready, those of
  /// queues.
  Status make_room_in_lists();
  /// Whether nothing is being built, or the options say to wait for it.
  [[nodiscard]] bool may_use_indexes() const noexcept;
  /// Whether indexes that steps read are there. Errors: those of building, which is tried again;
  /// not_ready where the options say to wait.
  Result<bool> has_indexes();
  /// Returns whether indexes are there, as has_indexes() did before.
  Result<bool> prepare(bool indexed);
  void choose_attention(bool indexed) noexcept;
  /// With retention: whether the step attends exactly, for a prompt, or because there are tokens
  /// outside the window that retention has not decided on.
  [[nodiscard]] bool must_attend_exactly() const noexcept;
  /// Whether rows outside sinks and window may lie on the host alone: they pass in tiles.
  [[nodiscard]] bool may_store_on_host() const noexcept;
  Status reserve(LentStepMemory& memory);
  /// Errors: out_of_memory, also where other sequences can spare memory.
  Status try_reserve(LentStepMemory& memory);
  /// Returns whether rows of a layer that the step attends to may lie on the host alone, once there
  /// is room for the rows that have to lie in device memory.
  [[nodiscard]] bool may_stream(const Layer& layer) const;
  Status reserve_tiles(LentStepMemory& memory);
  /// The step is refused: gives up what it has reserved beyond the sequence's `blocks`.
  void give_back(const Status& refused, std::size_t blocks, LentStepMemory& memory);
  /// The copy of what a token has selected to the host.
  [[nodiscard]] CopyExtent to_host(const AttendedToken& token) const noexcept {
    return token.selection.to_host(!plan_.traits().estimates_rest);
  }
  void list_selections(Layer& layer, std::vector<CopyExtent>& leaving);
  /// Counts the rests that attention has found, which is done.
  void count_rests() noexcept;
  /// Rows of a draft, and of a prompt's end, are indexed before the step has ended.
  [[nodiscard]] bool sends_rows_at_once() const noexcept {
    return (single_tokens() > 1 || parts_.indexes.prompt.is_under_way()) &&
           !plan_.keeps_everything();
  }
  /// Stores new rows that have no room in device memory, after `ready`.
  Status store_on_host(Ticket ready);
  [[nodiscard]] TokenRange new_tokens() const noexcept {
    return {progress_.length(), progress_.length() + tokens_};
  }
  Status note_attention();
  /// Layers whose rows and selections leave together once so many layers are done; none in between.
  [[nodiscard]] LayerSpan batch_ending_at(std::size_t layers_done) const noexcept;
  /// Layers whose caches' changes, where they need rows from the host, leave together once so many
  /// layers are done; none in between. The other half of the layers computes, in this step or the
  /// next, before the changes are waited for.
  [[nodiscard]] LayerSpan half_ending_at(std::size_t layers_done) const noexcept;
  Status keep_up(Layer& layer);
  Status keep_up_token(Layer& layer, std::size_t number);
  /// Makes the sequence longer by the first `tokens` tokens.
  Status accept(std::size_t tokens, Duration patience);
  /// Forgets the traces of rejected tokens up to `end`.
  Status reject_draft(std::size_t end);
  /// Forgets blocks after the length.
  void trim_rows();
  Status index_prompt();
  /// Whether the step brings the last tokens of a prompt, which can be indexed meanwhile.
  [[nodiscard]] bool may_index_prompt(bool indexed) const noexcept;
  /// Forgets what the step has indexed of a prompt that does not come whole. Errors: not_ready.
  Status give_up_indexing(Duration patience);
  [[nodiscard]] bool is_draft() const noexcept { return !exact_ && !prompt_ && tokens_ > 1; }

  SequenceParts& parts_;
  std::mutex& call_;
  const RuntimePlan& plan_;
  SequenceProgress& progress_;
  SequenceWork& work_;
  Layer* layer_ = nullptr;  ///< the one under way
  StepInput input_;
  std::size_t tokens_ = 1;
  std::size_t token_ = 0;                       ///< the one under way
  GroupRests rests_;                            ///< of its selection
  HostRows selected_rows_;                      ///< that the fetch to come reads
  std::vector<std::uint32_t> selected_blocks_;  ///< that have those rows
  bool lacks_rows_ = false;
  LayerSpan leaving_;    ///< layers whose rows and selections leave with the layer under way
  bool prompt_ = false;  ///< the tokens are a prompt's
  bool exact_ = false;
  std::size_t next_layer_ = 0;
  Ticket rows_stored_;    ///< the tensors' rows have been read for the host
  bool gathers_ = false;  ///< the step's attention is the embedder's own
  std::vector<StoreRows> stores_;
};

}  // namespace terrace
