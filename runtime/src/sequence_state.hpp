// tidy-allow(length): one state, whose functions lie in a file per part.
// The state behind a Sequence and the steps of its life. One file of functions per part:
//   sequence_prefill.cpp  begin_prefill, append, finish, end_prefill
//   sequence_step.cpp     begin_step, attend, gather, end_step
//   sequence_cache.cpp    what the resident cache does with a step: counts, refills, adoption
//   sequence_clusters.cpp the same, where clusters are cached
//   sequence_upkeep.cpp   what else a step leaves behind: index building and extension
//   sequence_refresh.cpp  indexes built anew in the background
//   sequence_memory.cpp   device blocks, host pages, step buffers, spilling
//   sequence_life.cpp     truncate, pause, resume, fork, reading back
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "layer_state.hpp"
#include "runtime_state.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/resident_cache.hpp"
#include "terrace/policies/budget.hpp"
#include "terrace/runtime/selection_observer.hpp"
#include "terrace/runtime/sequence.hpp"
#include "wanted_rows.hpp"

namespace terrace {

/// Device memory that layers use in turn, in the compute queue's order.
struct StepBuffers {
  Buffer staging;     ///< [lists * selected] rows; where clusters are cached each layer has its own
  Buffer rows;        ///< [lists, selected] row pointers
  Buffer missed;      ///< [lists * selected] MissedRow
  Buffer logit_bias;  ///< [lists, selected], of policies that give one
  Buffer select_scratch;
  Buffer attention_scratch;
  Buffer seen;  ///< per-query-head lists only
  Buffer seen_epoch;
  Buffer pseudo_rows;  ///< [lists, pseudo_entries]: rows of the index
  Buffer pseudo_bias;
  std::size_t candidates = 0;  ///< that select_scratch holds
  std::size_t entries = 0;     ///< that attention_scratch holds
  std::size_t positions = 0;   ///< that seen holds
  std::size_t pseudo_entries = 0;
};

/// One of two places into which a layer's index is streamed while the layer before it computes.
struct IndexStage {
  IndexMemory memory{Tier::device};
  Ticket streamed;
  Ticket read;  ///< the select that last read it
};

/// A layer's index being built anew in the background, in slices, one layer at a time.
struct Refresh {
  std::optional<std::size_t> layer = {};
  IndexMemory memory{Tier::host};
  std::vector<std::byte*> blocks = {};    ///< the layer's on the host: rows there do not change
  TokenRange built = {};                  ///< what it is built from
  TokenRange under_way = {};              ///< what is being built or added; once whole, the last
  std::size_t begun_at = 0;               ///< the sequence's length when that began
  std::vector<std::size_t> batches = {};  ///< as LayerIndex::batches
  Ticket slice = {};

  // Written by the slice, read after it is done.
  IndexProgress progress = {};
  Result<bool> whole = false;  ///< nothing of what is under way is left
  Duration slice_time = {};

  void take_on(TokenRange tokens, std::size_t length) noexcept {
    under_way = tokens;
    begun_at = length;
    progress.restart();
    whole = false;
  }
  void stop() noexcept {
    layer.reset();
    progress.restart();
  }
};

/// A block on its way back into device memory.
struct LoadingBlock {
  LayerState* layer = nullptr;
  std::size_t block = 0;
  std::byte* slot = nullptr;
};

/// Positions are 32-bit in selections.
inline constexpr std::size_t max_positions = std::size_t{1} << 31;

class SequenceState {
 public:
  static Result<std::unique_ptr<SequenceState>> create(RuntimeState& runtime);
  ~SequenceState();
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  // Prefill.
  Status begin_prefill(std::size_t tokens);
  Result<Ticket> append(LayerId layer, const PromptPiece& piece, Queue& compute);
  Status finish(LayerId layer, Queue& compute);
  Status end_prefill();

  // Step.
  Status begin_step();
  Status attend(LayerId layer, const StepInput& input, float* output, Queue& compute);
  Result<KvView> gather(LayerId layer, const StepInput& input, Queue& compute);
  Status end_step();
  Status abandon_step();

  // Life.
  Status truncate(std::size_t length);
  Status pause();
  Status resume();
  /// The twin is paused.
  Result<std::unique_ptr<SequenceState>> fork();
  Status read_row(LayerId layer, HeadId head, std::size_t position, std::span<std::byte> target);
  Status drop_cached(double share, std::uint64_t seed);
  StepSelection selection(LayerId layer) const noexcept;
  Result<ClusteringReport> clustering();

  /// Gives up the oldest device block that no step needs. Called by RuntimeState under memory
  /// pressure, from another sequence's thread too. Returns whether there was one.
  bool spill_one(bool own_thread);

  // Ranges for the token at `position`.
  [[nodiscard]] TokenRange sinks_at(std::size_t position) const noexcept;
  [[nodiscard]] TokenRange window_at(std::size_t position) const noexcept;
  /// The window of one layer: before the budget's window it has the tokens not indexed yet, which
  /// take the place of selected ones; a dense layer's is everything behind the sinks.
  [[nodiscard]] TokenRange window_of(std::size_t layer, std::size_t position) const noexcept;

  [[nodiscard]] SequencePhase phase() const noexcept { return phase_; }
  [[nodiscard]] std::size_t length() const noexcept { return length_; }
  [[nodiscard]] std::size_t budget_tokens() const noexcept { return budget_tokens_; }
  [[nodiscard]] const policies::BudgetSplit& split() const noexcept { return split_; }
  [[nodiscard]] std::size_t cache_capacity_tokens() const noexcept { return cache_tokens_; }
  [[nodiscard]] std::size_t query_window_tokens() const noexcept {
    return runtime_.policy->traits().query_window_tokens;
  }
  [[nodiscard]] const SequenceCounters& counters() const noexcept { return counters_; }
  /// Counts what was loaded for a twin that there will not be.
  void count_for(const SequenceCounters& twin) noexcept {
    counters_.bytes.refill += twin.bytes.refill;
  }
  void reset_counters() noexcept {
    counters_ = {};
    reported_index_bytes_ = ids_bytes_ = 0;
  }

  std::mutex mutex;  ///< held by every public call; try_lock by spilling from elsewhere

 private:
  explicit SequenceState(RuntimeState& runtime) : runtime_(runtime), id_(runtime.next_sequence()) {}

  // sequence_memory.cpp
  /// Whether there is room for all pages that so many blocks lack: those that a prompt had taken
  /// before it was refused would stay with the pool, and all memory could be theirs.
  [[nodiscard]] Status find_pages(std::size_t blocks) const;
  Status reserve_positions(std::size_t length);
  void trim_blocks(std::size_t blocks);
  Status place_block(LayerState& layer, std::size_t block);
  Status place_needed_blocks(std::size_t length);
  /// For a prompt that ends at `length`.
  void place_spare_blocks(std::size_t length);
  void release_block(LayerState& layer, std::size_t block);
  void release_passed_blocks();
  void release_left_behind(LayerState& layer, std::size_t block);
  /// Gives up the first block before `end` that the token at `position` does not need. Returns
  /// whether there was one.
  bool spill_oldest(std::size_t layer, std::size_t end, std::size_t position);
  void spill_block(LayerState& layer, std::size_t block);
  void release_spare_slots(LayerState& layer);
  void withdraw_arrivals(LayerState& layer);
  /// Brings back what a step needs. On an error what was not there before is still not there.
  Status load_needed_blocks();
  Status load_blocks(std::span<const LoadingBlock> loading);
  Status reserve_selection(LayerState& layer);
  Status reserve_seen(std::size_t length);
  /// Copies at once, waiting for it. Past the deadline the sequence keeps `on_host`, the memory of
  /// the copy's host side, for a copy that is still under way.
  Status copy_now(Queue& queue, Phase phase, std::span<const CopyExtent> extents, Buffer& on_host);
  Status reserve_pseudo_entries(std::size_t length);
  Status reserve_step_buffers(std::size_t length);
  Status reserve_index(std::size_t tokens_end);
  Status reserve_stages(std::size_t chunks);
  void trim_indexes();
  Status give_up_resident_indexes();
  /// Undoes give_up_resident_indexes(), where there is room.
  void make_indexes_resident();
  [[nodiscard]] bool needs_block(std::size_t layer, std::size_t block, std::size_t position) const;
  [[nodiscard]] SelectionBuffers selection_buffers(const Buffer& buffer) const noexcept;
  /// Tries `reserve` again after each block that some sequence could spare. What spilling takes
  /// from this sequence, `reserve` must take back behind all that it can fail for.
  Status reclaiming(FunctionRef<Status()> reserve);
  /// The same for a sequence that grows to `length` tokens, behind the question for pages: what is
  /// spilled on the device makes no room for them.
  Status reclaiming_for(std::size_t length, FunctionRef<Status()> reserve);
  void give_up_device_memory();

  // sequence_prefill.cpp
  void resolve_budget(std::size_t context);
  /// Of an empty sequence whose queues have nothing of it.
  void forget_first_prompt();
  [[nodiscard]] Status check_hints(const PromptPiece& piece) const;
  Status keep_hints(LayerState& layer, const PromptHints& hints, Queue& compute);
  Status store_on_device(LayerState& layer, const PromptPiece& piece, Queue& compute);

  // sequence_step.cpp
  Status prepare_step();
  Status reserve_step();
  /// Waits for all builds.
  Status await_indexes();
  Status await_build(std::size_t layer);
  /// Builds again what failed.
  Status build_again(std::span<const std::size_t> layers);
  /// Notes whether a build was hidden, and the compute that was to hide it.
  void observe_build(std::size_t layer);
  Status publish_arrivals(LayerState& layer, Queue& compute);
  Result<Ticket> store_token(const LayerState& layer, const StepInput& input, Queue& compute);
  /// Errors: invalid_argument outside of `phase`, when the layer is not the next one, or on another
  /// queue than before.
  Status take_turn(std::string_view call, SequencePhase phase, LayerId layer,
                   const Queue& compute) const;
  /// What the embedder enqueued of the last layer belongs to its attention.
  Status note_attention();
  /// Counts what looking after the cache has taken since `begin`. Compute that ends before it does
  /// is taken to hide nothing of it.
  void count_upkeep(TimePoint begin);
  /// All that is enqueued by now may hide upkeep.
  void note_compute();
  /// Enqueues the copies of the token's rows and of what was selected, behind `ready`.
  Status copy_to_host(std::span<LayerState> layers, Ticket ready);
  /// Layers whose rows and selections leave together once so many layers are done; none in between.
  [[nodiscard]] std::span<LayerState> batch_ending_at(std::size_t layers_done) noexcept;
  /// The same of changes of caches that need rows from the host. The other half of the layers
  /// computes, in this step or the next, before they are waited for.
  [[nodiscard]] std::span<LayerState> half_ending_at(std::size_t layers_done) noexcept;
  /// Whether a step attends to every row of a layer, because none has been spilled.
  [[nodiscard]] bool attends_to_all(const LayerState& layer) const;
  [[nodiscard]] bool selection_applies(const LayerState& layer) const;
  Result<IndexView> index_for_step(std::size_t layer, Queue& compute);
  [[nodiscard]] TokenRange candidates_of(const LayerState& layer) const noexcept;
  [[nodiscard]] PseudoTarget pseudo_target(const SelectionBuffers& buffers) const noexcept;
  [[nodiscard]] SelectRequest select_request(std::size_t layer, const StepInput& input,
                                             const IndexView& index) const noexcept;
  [[nodiscard]] Selection selection_target(const LayerState& layer) const noexcept;
  /// Enqueues selection, resolution and fetches; the ticket is of the resolution.
  Result<Ticket> select_rows(std::size_t layer, const StepInput& input, Queue& compute);
  [[nodiscard]] ResolveRows resolve_request(const LayerState& layer) const noexcept;
  /// Returns `done`; behind a failure that would come again, all queues are at rest and cleared.
  Status recovering(const Status& done);
  [[nodiscard]] bool has_failed_work() const;
  void recover();
  Result<KvView> prepare(std::string_view call, LayerId id, const StepInput& input, Queue& compute);

  // sequence_upkeep.cpp
  [[nodiscard]] BuildRequest index_request(std::size_t layer, TokenRange tokens) const;
  Status build_index(std::size_t layer, TokenRange tokens);
  /// Lets the cluster queue wait for the layer's rows on the host, and notes when they are there.
  Status note_arrival(LayerState& layer);
  void run_build(BuildRequest request);
  /// Enqueues the coding of what is not coded yet and stages the upload.
  Status extend_index(std::size_t layer, std::size_t end);
  [[nodiscard]] Result<Ticket> add_to_index(const BuildRequest& request);
  Status prepare_indexes();
  /// Calls `code` for each layer up to one that fails, and sends what is to be uploaded.
  Status code_layers(FunctionRef<Status(std::size_t)> code);
  Status code_lost_tokens();
  Status code_lost_tokens(std::size_t layer);
  Status code_passed_tokens(std::size_t layer);
  [[nodiscard]] bool takes_batches() const noexcept {
    return runtime_.policy->traits().batch_tokens_max > 1;
  }
  /// Tokens that wait in the window for each other before they are indexed.
  [[nodiscard]] std::size_t batch_tokens() const noexcept;
  [[nodiscard]] bool batch_is_due(std::size_t layer) const noexcept;
  /// Whether an index of so many tokens was trained on too few of them.
  [[nodiscard]] bool is_outgrown(const LayerIndex& index, std::size_t tokens) const noexcept;
  /// Notes what of a layer's index has to be copied to the device; returns the bytes.
  Result<std::size_t> stage_upload(LayerState& layer, TokenRange tokens, bool with_fixed);
  /// Enqueues all copies that were noted, in one.
  Status send_uploads();
  void forget_uploads() noexcept {
    uploads_.clear();
    uploading_.clear();
  }
  Result<std::size_t> upload_index(LayerState& layer, TokenRange tokens, bool with_fixed);
  Status stream_index(std::size_t layer);

  // sequence_refresh.cpp
  Status refresh_indexes();
  Status start_refresh(std::size_t layer);
  [[nodiscard]] Status reserve_refresh();
  void note_refresh_blocks(std::size_t end);
  [[nodiscard]] BuildRequest refresh_request() const;
  Status continue_refresh();
  Status give_refresh_up();
  Status work_for_a_slice();
  Status catch_up();
  Status publish_refresh();

  // sequence_cache.cpp
  /// For a sequence of so many tokens.
  Status reserve_cache(std::size_t length);
  Status fit_cache();
  void place_cache_seeds();
  void place_cache_seed(LayerState& layer, std::size_t block);
  bool adopt_block(LayerState& layer, std::size_t block);
  void release_evicted(LayerState& layer, std::span<const UnitKey> blocks);
  [[nodiscard]] bool caches_clusters() const noexcept {
    return runtime_.options.cache.granularity == CacheGranularity::cluster && selects();
  }
  [[nodiscard]] std::size_t cache_units(const LayerState& layer) const noexcept;
  [[nodiscard]] std::size_t slot_tokens() const noexcept;
  /// Positions between those that lie in device memory on their own account: a head and a tail,
  /// whatever the placement. The cache's business is rows in between.
  [[nodiscard]] TokenRange cacheable_positions(const LayerState& layer) const noexcept;
  void count_wanted(const LayerState& layer);
  /// Returns how many rows of a list are no business of the cache.
  std::size_t count_list(const LayerState& layer, std::size_t list, TokenRange cacheable);
  void start_noting_rows(const LayerState& layer);
  void want_blocks(const LayerState& layer);
  /// Returns how many rows of a unit the step wanted.
  std::uint32_t count_unit(UnitKey unit, bool hit);
  void sort_positions(const LayerState& layer);
  Status upkeep_cache(std::size_t layer);
  Status update_cache(LayerState& layer);
  Status update_blocks(LayerState& layer);
  /// Takes the slots of evicted blocks for what is admitted next.
  void reuse_slots(LayerState& layer, std::span<const UnitKey> evicted);
  /// Returns a slot for a block, or null: the cache has given it up.
  std::byte* slot_for(LayerState& layer, const offload::WantedUnit& admitted);
  /// Device memory is smaller than the cache was meant to be: names in `evicted_` what goes for a
  /// unit, or gives the unit up and returns false.
  bool displace_for(LayerState& layer, const offload::WantedUnit& admitted);
  void report_selection(std::size_t layer);
  void report_step_end();
  void report_prompt() const;
  void report_load(std::span<const LoadingBlock> loaded) const;
  void report_loss() const;
  void leave_cache();

  // sequence_clusters.cpp
  [[nodiscard]] std::size_t cluster_units(const LayerState& layer) const noexcept;
  Status reserve_slots(LayerState& layer, std::size_t length);
  /// Reads which rows belong to which cluster, if that has changed. Coding must have ended.
  void read_members(LayerState& layer);
  /// Has device memory ready for what the caches may hold of so many tokens, as far as there is
  /// any.
  void reserve_cluster_blocks(std::size_t length);
  void let_go(LayerState& layer, UnitKey unit);
  /// Returns whether there were any.
  bool drop_clusters(LayerState& layer);
  void drop_some_clusters(LayerState& layer, double share, Rng& rng);
  bool release_unused_blocks(LayerState& layer);
  bool spill_clusters(LayerState& layer);
  /// No step fails for its cache: the layer goes without until there is room.
  void give_up_slots(LayerState& layer);
  /// Enqueues what has changed in a layer's slots, or gives them up where the host has no memory to
  /// send it from.
  Result<Ticket> flush_slots(LayerState& layer, Queue& queue);
  /// Makes all changes of a layer's slots, and waits for them. Between steps.
  Status await_slots(LayerState& layer);
  /// Enqueues them beside compute, for layers whose changes need rows from the host.
  Status send_slots(std::span<LayerState> layers);
  Status publish_clusters(LayerState& layer, Queue& compute);
  void want_clusters(LayerState& layer);
  /// Counts by clusters what sort_positions() found. Where a policy has none, none are wanted.
  void count_clusters(LayerState& layer);
  /// Lists all rows of a unit that is wanted and not cached, with where they were staged.
  void list_rows_of(UnitKey unit, const LayerState& layer);
  void update_clusters(LayerState& layer);
  void let_go_of(LayerState& layer, std::span<const UnitKey> units);
  /// Gives an admitted unit slots, or lets the cache give it up and returns false.
  bool place_unit(LayerState& layer, const offload::WantedUnit& admitted);

  // sequence_life.cpp
  /// Forgets what is indexed from length() on.
  void cut_indexes();
  /// Forgets what is indexed of a layer from `end` on, where a batch of an extension begins.
  void cut_index(std::size_t layer, std::size_t end);
  /// Waits for all work and clears failed queues. Returns whether they have come to rest; if not,
  /// tickets tell what has not.
  bool settle_queues();
  /// Pauses behind a failure; the sequence is lost where the queues do not come to rest.
  void rest_without_device_memory();
  void come_to_rest();  ///< pauses; the queues must have come to rest
  /// After a failure: what may have been lost of the indexes is forgotten, or sent again.
  void forget_lost_coding();
  Status own_block(std::size_t block);
  [[nodiscard]] bool is_shared(const LayerState& layer, std::size_t block) const;
  /// Makes a layer of another sequence the same as one of this, its pages shared.
  Status copy_layer(const LayerState& mine, LayerState& its);
  [[nodiscard]] std::size_t indexed_end() const noexcept;
  Status restore_index();

  [[nodiscard]] bool is_dense(std::size_t layer) const noexcept {
    return layer < runtime_.options.dense_layers;
  }
  [[nodiscard]] bool selects() const noexcept { return runtime_.policy->traits().selects; }
  [[nodiscard]] bool keeps_everything() const noexcept {
    return runtime_.policy->traits().keeps_everything;
  }
  [[nodiscard]] std::size_t lists() const noexcept;
  /// Rows that a list has room for.
  [[nodiscard]] std::size_t list_rows() const noexcept { return split_.selected; }
  /// Lists of one KV head.
  [[nodiscard]] std::size_t group() const noexcept { return lists() / runtime_.shape().kv_heads; }
  [[nodiscard]] std::size_t block_tokens() const noexcept { return runtime_.options.block_tokens; }
  [[nodiscard]] BlockTable table(const PointerTable& blocks) const noexcept {
    return {.blocks = blocks.data(), .block_tokens = block_tokens()};
  }
  [[nodiscard]] Duration deadline() const noexcept { return runtime_.options.deadline; }
  [[nodiscard]] LayerState& layer_state(LayerId id) noexcept { return layers_[index(id)]; }

  RuntimeState& runtime_;
  SequenceId id_{};
  SequencePhase phase_ = SequencePhase::idle;
  std::size_t length_ = 0;
  std::size_t prefill_end_ = 0;
  std::size_t next_layer_ = 0;  ///< layers are finished and attended in order
  std::size_t appended_ = 0;    ///< positions of next_layer_ appended so far

  bool budget_resolved_ = false;
  std::size_t budget_tokens_ = 0;
  policies::BudgetSplit split_;
  std::size_t cache_tokens_ = 0;   ///< per layer, this sequence's share
  std::size_t cache_sharers_ = 0;  ///< as of the last step; 0 = not in the deal

  std::vector<LayerState> layers_;
  StepBuffers step_;
  bool index_streamed_ = false;
  bool indexes_ready_ = false;  ///< passed tokens are coded, layer 0's index is streamed
  std::array<IndexStage, 2> stages_;

  // Each sequence has queues of its own: a failure stays with it, and none is shared between
  // threads.
  std::unique_ptr<Queue> offload_queue_;  ///< device to host
  std::unique_ptr<Queue> index_queue_;    ///< host to device: codes and centroids
  std::unique_ptr<Queue> refill_queue_;   ///< host to device: admitted blocks
  std::unique_ptr<Queue> cluster_queue_;  ///< host work that steps wait for
  std::unique_ptr<Queue> refresh_queue_;  ///< host work that none waits for; null = no refreshes
  Refresh refresh_;
  Queue* compute_ = nullptr;  ///< the embedder's, as long as work of ours may be in it
  bool gathers_ = false;      ///< the step's attention is the embedder's own
  Ticket computed_;           ///< the step's compute, as far as it is known

  std::vector<TimePoint>
      hidden_until_;  ///< per layer: when the compute that hides its clustering ended
  std::size_t late_layers_ = 0;
  Duration clustering_waited_{};
  std::atomic<bool> cancel_builds_{false};
  SequenceCounters counters_;

  std::vector<CopyExtent> uploads_;     ///< staged
  std::vector<LayerState*> uploading_;  ///< whose they are

  std::vector<Buffer> abandoned_;  ///< that copies past their deadline may still use

  // Scratch of upkeep, kept so that a step allocates nothing.
  std::vector<CopyExtent> extents_;
  WantedRows wanted_rows_;
  std::vector<UnitRow> unit_rows_;
  std::vector<std::uint64_t> rows_seen_;  ///< [kv_heads, positions]: when last; if lists overlap
  std::uint64_t row_epoch_ = 0;
  std::vector<std::uint32_t> positions_;  ///< for the observer
  std::vector<std::uint32_t> head_counts_;
  std::vector<WantedCluster> wanted_clusters_;
  std::vector<UnitKey> evicted_;
  std::uint64_t reported_index_bytes_ = 0;
  std::uint64_t ids_bytes_ = 0;  ///< that the observer has not heard of
  std::vector<offload::WantedUnit> wanted_;
  offload::CachePlan plan_;
};

}  // namespace terrace
