// The rest of a sequence's life: rolling back, pausing, forking, reading back, coming to rest.
#include <algorithm>
#include <cstring>

#include "../sequence_state.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/drain_to_end.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/runtime/selection_observer.hpp"

namespace terrace {

Result<std::unique_ptr<SequenceState>> SequenceState::create(RuntimeState& runtime) {
  std::unique_ptr<SequenceState> state(new SequenceState(runtime));
  Backend& backend = *runtime.backend;
  TERRACE_ASSIGN(state->offload_queue_, backend.make_queue({.name = "offload", .lane = "offload"}));
  TERRACE_ASSIGN(state->index_queue_, backend.make_queue({.name = "index", .lane = "index"}));
  TERRACE_ASSIGN(state->refill_queue_, backend.make_queue({.name = "refill", .lane = "refill"}));
  TERRACE_ASSIGN(state->cluster_queue_,
                 backend.make_host_queue({.name = "cluster", .lane = "cluster"}));
  // A queue is a thread or a stream: only where there is work for it.
  if (runtime.options.refresh.tokens > 0) {
    TERRACE_ASSIGN(state->refresh_queue_,
                   backend.make_host_queue({.name = "refresh", .lane = "refresh"}));
  }
  for (std::size_t i = 0; i < runtime.shape().layers; ++i) {
    state->layers_.emplace_back(runtime.pages(), runtime.shape(), runtime.options.block_tokens);
  }
  state->hidden_until_.resize(state->layers_.size());
  runtime.enter(*state);
  return state;
}

SequenceState::~SequenceState() {
  if (runtime_.options.observer != nullptr) runtime_.options.observer->on_close(id_);
  runtime_.leave(*this);
  cancel_builds_.store(true, std::memory_order_relaxed);
  settle_queues();
  // Work that outlasted the deadline still uses the sequence's memory. The end of a queue cancels
  // what is enqueued and waits for what runs; then compute waits for nothing of the sequence any
  // more.
  for (auto* queue :
       {&offload_queue_, &index_queue_, &refill_queue_, &cluster_queue_, &refresh_queue_}) {
    queue->reset();
  }
  if (compute_ != nullptr) drain_to_end(*compute_, deadline());
  give_up_device_memory();
  const auto lock = runtime_.lock_pages();
  for (LayerState& layer : layers_) layer.pages.truncate(0);
}

bool SequenceState::settle_queues() {
  bool at_rest = true;
  bool failed = false;
  const Deadline all(deadline());
  const auto settle = [&](Queue* queue) {
    if (queue == nullptr) return true;
    const Status drained = queue->drain(all.left());
    const bool late = !drained && drained.error().code == Errc::not_ready;
    failed = failed || (!drained && !late);
    at_rest = at_rest && !late && queue->clear_error();
    return !late;
  };
  // All must have stopped before one is cleared: a queue may still be waiting for a failed one.
  const auto own = {offload_queue_.get(), index_queue_.get(), refill_queue_.get(),
                    cluster_queue_.get(), refresh_queue_.get()};
  if (compute_ != nullptr) static_cast<void>(compute_->drain(all.left()));
  for (Queue* const queue : own) {
    if (queue != nullptr) static_cast<void>(queue->drain(all.left()));
  }
  // Nothing of ours is left in it: it may go.
  if (settle(compute_)) compute_ = nullptr;
  for (Queue* const queue : own) settle(queue);
  if (failed) forget_lost_coding();
  // What is still under way is known by its tickets.
  if (!at_rest) return false;
  refresh_.stop();
  for (LayerState& layer : layers_) {
    layer.offloaded = layer.attended = layer.refilled = {};
    layer.index.uploaded = {};
    // A failed queue may have skipped the copying of what was set.
    layer.device_blocks.touch_all();
    layer.index.device.table().touch_all();
  }
  for (IndexStage& stage : stages_) {
    stage.streamed = stage.read = {};
    stage.memory.table().touch_all();
  }
  indexes_ready_ = false;
  return true;
}

void SequenceState::forget_lost_coding() {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    LayerIndex& index = layers_[layer].index;
    index.stale = true;
    if (index.building) continue;     // await_indexes() sees to it
    if (poll(index.coded)) continue;  // done, or still under way
    index.coded = {};
    const std::vector<std::size_t> lost = index.ends_behind(index.coded_before);
    cut_index(layer, index.coded_before);
    if (index.tokens.empty()) {
      index.lost_ends.clear();
    } else {
      index.lost_ends.insert(index.lost_ends.begin(), lost.begin(), lost.end());
    }
  }
}

Status SequenceState::own_block(std::size_t block) {
  if (keeps_everything()) return {};
  for (LayerState& layer : layers_) {
    if (block >= layer.pages.size() || !is_shared(layer, block)) continue;
    // Who reads the page that is left behind, to index or to fetch its rows, must be done with it.
    if (caches_clusters()) TERRACE_TRY(wait(layer.refilled, deadline()));
    const Status read = wait(layer.index.coded, deadline());
    if (!read && read.error().code == Errc::not_ready) return read;
    const auto lock = runtime_.lock_pages();
    TERRACE_ASSIGN(std::byte* const page, layer.pages.make_writable(block));
    layer.host_blocks.set(block, page);
  }
  return {};
}

bool SequenceState::is_shared(const LayerState& layer, std::size_t block) const {
  const auto lock = runtime_.lock_pages();
  return layer.pages.shared(block);
}

Status SequenceState::truncate(std::size_t length) {
  if (phase_ != SequencePhase::idle || length > length_) {
    return fail(Errc::invalid_argument, "truncate to {}: the sequence is not idle, or has only {}",
                length, length_);
  }
  TERRACE_TRY(await_indexes());
  if (!settle_queues()) return fail(Errc::not_ready, "truncate: copies are still under way");
  for (LayerState& layer : layers_) {
    withdraw_arrivals(layer);
    // Positions from `length` on will have other rows.
    drop_clusters(layer);
    layer.members_stale = true;
    for (std::size_t block = length / block_tokens(); block < layer.places.size(); ++block) {
      // A copy of a block that loses tokens will be written again: it must not outlive them.
      if (layer.places[block] == BlockPlace::cached) release_block(layer, block);
    }
    layer.selected = false;
  }
  length_ = length;
  trim_blocks(divide_up(length, block_tokens()));
  if (keeps_everything()) return {};
  cut_indexes();
  const Status loaded = load_needed_blocks();
  if (loaded) return {};
  rest_without_device_memory();
  return tl::unexpected(loaded.error().while_doing(
      "truncate: the window could not be loaded; if the sequence is paused, resume() tries again"));
}

void SequenceState::rest_without_device_memory() {
  report_loss();
  // What a copy that does not end still writes to must not become another's.
  if (settle_queues()) {
    come_to_rest();
  } else {
    phase_ = SequencePhase::lost;
  }
}

void SequenceState::come_to_rest() {
  give_up_device_memory();
  if (runtime_.options.observer != nullptr) runtime_.options.observer->on_pause(id_);
  phase_ = SequencePhase::paused;
}

void SequenceState::cut_indexes() {
  const std::size_t together = runtime_.policy->traits().indexed_together;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    LayerIndex& index = layers_[layer].index;
    std::erase_if(index.lost_ends, [this](std::size_t end) { return end > length_; });
    if (index.tokens.end <= length_) continue;
    // What stands for several tokens must not remember those that are gone. Where indexing them
    // again fails it is tried again, and reported, when the next step begins.
    const std::size_t kept = index.remembered_from(length_, together);
    const bool nothing_is_left = kept == index.tokens.begin && kept < length_;
    if (nothing_is_left && build_index(layer, {kept, length_})) continue;
    cut_index(layer, kept);
    // Who takes batches indexes the rest with what comes next, as before.
    const bool goes_on = !nothing_is_left && kept < length_ && !takes_batches();
    if (goes_on) static_cast<void>(extend_index(layer, length_));
  }
  static_cast<void>(send_uploads());
}

void SequenceState::cut_index(std::size_t layer, std::size_t end) {
  LayerIndex& index = layers_[layer].index;
  index.end_at(end);
  if (index.tokens.empty()) return;
  const Result<bool> changed = runtime_.policy->cut(index_request(layer, {end, end}));
  if (!changed) {
    index.tokens = {};  // the next step builds it anew
  } else if (*changed) {
    index.stale = true;
  }
}

Status SequenceState::pause() {
  if (phase_ != SequencePhase::idle) {
    return fail(Errc::invalid_argument, "pause: the sequence is not idle");
  }
  if (keeps_everything()) {
    return fail(Errc::unsupported, "pause: policy {} keeps no copy on the host",
                runtime_.policy->traits().name);
  }
  TERRACE_TRY(await_indexes());
  if (!settle_queues()) return fail(Errc::not_ready, "pause: copies are still under way");
  come_to_rest();
  return {};
}

Status SequenceState::resume() {
  if (phase_ != SequencePhase::paused) {
    return fail(Errc::invalid_argument, "resume: the sequence is not paused");
  }
  phase_ = SequencePhase::idle;
  const auto restore = [&]() -> Status {
    TERRACE_TRY(reserve_positions(length_));
    TERRACE_TRY(load_needed_blocks());
    TERRACE_TRY(reserve_step_buffers(length_ + 1));
    TERRACE_TRY(restore_index());
    return reserve_cache(length_ + 1);
  };
  const Status restored = reclaiming(restore);
  if (restored) {
    reserve_cluster_blocks(length_);
  } else {
    rest_without_device_memory();
  }
  return restored;
}

std::size_t SequenceState::indexed_end() const noexcept {
  // Layers differ: some are dense, and a refresh takes over in one at a time.
  std::size_t end = 0;
  for (const LayerState& layer : layers_) end = std::max(end, layer.index.tokens.end);
  return end;
}

Status SequenceState::restore_index() {
  TERRACE_TRY(reserve_index(indexed_end()));
  for (LayerState& layer : layers_) {
    if (layer.index.tokens.empty()) continue;
    TERRACE_TRY(upload_index(layer, layer.index.tokens, /*with_fixed=*/true));
  }
  return {};
}

Result<std::unique_ptr<SequenceState>> SequenceState::fork() {
  if (phase_ != SequencePhase::idle) {
    return fail(Errc::invalid_argument, "fork: the sequence is not idle");
  }
  if (keeps_everything()) {
    return fail(Errc::unsupported, "fork: policy {} keeps no copy on the host to share",
                runtime_.policy->traits().name);
  }
  TERRACE_TRY(await_indexes());
  for (const LayerState& layer : layers_) {
    TERRACE_TRY(recovering(wait(layer.index.coded, deadline())));
  }
  // Blocks that a refresh reads may change hands from now on.
  if (refresh_queue_ != nullptr) TERRACE_TRY(refresh_queue_->drain(deadline()));
  refresh_.stop();
  TERRACE_ASSIGN(std::unique_ptr<SequenceState> twin, create(runtime_));
  const std::lock_guard its_lock(twin->mutex);  // others may look for memory in it by now
  twin->budget_resolved_ = budget_resolved_;
  twin->budget_tokens_ = budget_tokens_;
  twin->split_ = split_;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    TERRACE_TRY(copy_layer(layers_[i], twin->layers_[i]));
  }
  twin->length_ = length_;
  twin->phase_ = SequencePhase::paused;
  return twin;
}

Status SequenceState::copy_layer(const LayerState& mine, LayerState& its) {
  {
    const auto lock = runtime_.lock_pages();
    its.pages = mine.pages.fork();
  }
  TERRACE_TRY(its.host_blocks.reserve(*runtime_.backend, its.pages.size()));
  for (std::size_t page = 0; page < its.pages.size(); ++page) {
    its.host_blocks.set(page, its.pages[page]);
  }
  its.pre_rope_keys = mine.pre_rope_keys;
  its.query_window = mine.query_window;
  its.attention_scores = mine.attention_scores;
  if (mine.index.tokens.empty()) return {};
  TERRACE_TRY(its.index.host.copy_from(mine.index.host, *runtime_.backend, runtime_.index_layout));
  its.index.tokens = mine.index.tokens;
  its.index.batches = mine.index.batches;
  its.index.lost_ends = mine.index.lost_ends;
  its.index.trained = mine.index.trained;
  its.index.fresh_end = mine.index.fresh_end;
  its.index.report = mine.index.report;
  return {};
}

Status SequenceState::read_row(LayerId id, HeadId head, std::size_t position,
                               std::span<std::byte> target) {
  const KvShape& shape = runtime_.shape();
  if (phase_ != SequencePhase::idle || position >= length_ || index(id) >= layers_.size() ||
      index(head) >= shape.kv_heads || target.size() != shape.row_bytes()) {
    return fail(Errc::invalid_argument, "read_row: layer {}, head {}, position {} of {}, {} bytes",
                index(id), index(head), position, length_, target.size());
  }
  const LayerState& layer = layer_state(id);
  const std::size_t block = position / block_tokens();
  const std::size_t at =
      (index(head) * block_tokens() + position % block_tokens()) * shape.row_bytes();
  const bool in_middle =
      position >= sinks_at(length_).end && position < window_of(index(id), length_).begin;
  if (in_middle || layer.places[block] == BlockPlace::absent) {
    TERRACE_TRY(wait(layer.offloaded, deadline()));
    std::memcpy(target.data(), layer.host_blocks[block] + at, target.size());
    return {};
  }
  TERRACE_TRY(wait(layer.attended, deadline()));
  TERRACE_ASSIGN(Buffer row,
                 runtime_.backend->allocate({.bytes = target.size(), .tier = Tier::host}));
  const CopyExtent extent{row.data(), layer.device_blocks[block] + at, target.size()};
  TERRACE_TRY(copy_now(*offload_queue_, Phase::offload, {&extent, 1}, row));
  std::memcpy(target.data(), row.data(), target.size());
  return {};
}

Status SequenceState::drop_cached(double share, std::uint64_t seed) {
  if (phase_ != SequencePhase::idle) {
    return fail(Errc::invalid_argument, "drop_cached: the sequence is not idle");
  }
  report_loss();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    LayerState& layer = layers_[i];
    Rng rng(seed, {i, length_});
    TERRACE_TRY(wait(layer.attended, deadline()));
    TERRACE_TRY(await_slots(layer));
    drop_some_clusters(layer, share, rng);
    for (std::size_t block = 0; block < layer.places.size(); ++block) {
      if (layer.places[block] == BlockPlace::cached && rng.uniform() < share) {
        release_block(layer, block);
      }
    }
  }
  return {};
}

StepSelection SequenceState::selection(LayerId id) const noexcept {
  if (index(id) >= layers_.size()) return {};
  const LayerState& layer = layers_[index(id)];
  StepSelection result{.sinks = layer.sinks,
                       .window = layer.window,
                       .scope = runtime_.policy->traits().lists,
                       .stride = list_rows()};
  if (layer.selected) {
    const SelectionBuffers buffers = selection_buffers(layer.selection_host);
    result.ids = {buffers.ids, lists() * list_rows()};
    result.counts = {buffers.counts, lists()};
  }
  return result;
}

Result<ClusteringReport> SequenceState::clustering() {
  // To wait is to hurry: builds that the rest of a prompt hides would be cut short.
  if (phase_ == SequencePhase::prefill) {
    return fail(Errc::invalid_argument, "clustering: the prompt has not ended");
  }
  TERRACE_TRY(await_indexes());
  ClusteringReport report{.planned = runtime_.plans_iterations(),
                          .late_layers = late_layers_,
                          .waited = clustering_waited_};
  for (const LayerState& layer : layers_) {
    report.iterations.push_back(layer.index.report.iterations);
    report.busy += layer.index.build_end - layer.index.build_begin;
  }
  return report;
}

}  // namespace terrace
