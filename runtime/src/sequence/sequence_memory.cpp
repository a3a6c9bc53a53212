// Where a sequence's rows and buffers lie: host pages, device blocks, step buffers, spilling.
#include <algorithm>
#include <cstring>

#include "../sequence_state.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

// Buffers that follow the sequence's length grow by a quarter, so that decoding seldom allocates.
// What they have room for is none while they grow: the old ones may be all there is memory for.
std::size_t with_room(std::size_t count) { return count + count / 4 + 256; }

Status reserve_buffer(Backend& backend, Buffer& buffer, std::size_t bytes, Purpose purpose) {
  if (bytes == 0 || buffer.bytes() >= bytes) return {};
  buffer.reset();
  TERRACE_ASSIGN(buffer, backend.allocate({.bytes = bytes, .purpose = purpose}));
  return {};
}

}  // namespace

TokenRange SequenceState::sinks_at(std::size_t position) const noexcept {
  return {0, std::min(split_.sinks, position)};
}

TokenRange SequenceState::window_at(std::size_t position) const noexcept {
  const std::size_t recent = position > split_.window ? position - split_.window : 0;
  return {std::max(sinks_at(position).end, recent), position + 1};
}

TokenRange SequenceState::window_of(std::size_t layer, std::size_t position) const noexcept {
  TokenRange window = window_at(position);
  const TokenRange& indexed = layers_[layer].index.tokens;
  if (is_dense(layer)) {
    window.begin = sinks_at(position).end;
  } else if (takes_batches() && !indexed.empty() && window.begin > indexed.end) {
    window.begin -= std::min(window.begin - indexed.end, split_.selected);
  }
  return window;
}

std::size_t SequenceState::lists() const noexcept {
  return list_count(runtime_.shape(), runtime_.policy->traits().lists);
}

bool SequenceState::needs_block(std::size_t layer, std::size_t block, std::size_t position) const {
  const std::size_t begin = block * block_tokens();
  return begin < sinks_at(position).end ||
         begin + block_tokens() > window_of(layer, position).begin;
}

Status SequenceState::find_pages(std::size_t blocks) const {
  if (keeps_everything()) return {};
  std::size_t missing = 0;
  for (const LayerState& layer : layers_) missing += blocks - std::min(blocks, layer.pages.size());
  if (missing == 0) return {};
  const auto lock = runtime_.lock_pages();
  return runtime_.pages().check_room(missing);
}

Status SequenceState::reserve_positions(std::size_t length) {
  const std::size_t blocks = divide_up(length, block_tokens());
  for (LayerState& layer : layers_) {
    TERRACE_TRY(layer.device_blocks.reserve(*runtime_.backend, blocks));
    if (!keeps_everything()) {
      // Coding reads the table that growing would move.
      if (!layer.host_blocks.holds(blocks)) {
        TERRACE_TRY(wait(layer.index.coded, deadline()));
        if (caches_clusters()) TERRACE_TRY(wait(layer.refilled, deadline()));
      }
      TERRACE_TRY(layer.host_blocks.reserve(*runtime_.backend, blocks));
      const auto lock = runtime_.lock_pages();
      for (std::size_t i = layer.pages.size(); i < blocks; ++i) {
        TERRACE_ASSIGN(std::byte* const page, layer.pages.append());
        layer.host_blocks.set(i, page);
      }
    }
    if (layer.places.size() < blocks) layer.places.resize(blocks, BlockPlace::absent);
  }
  return {};
}

void SequenceState::trim_blocks(std::size_t blocks) {
  for (LayerState& layer : layers_) {
    for (std::size_t i = blocks; i < layer.places.size(); ++i) release_block(layer, i);
    layer.places.resize(std::min(layer.places.size(), blocks));
    const auto lock = runtime_.lock_pages();
    layer.pages.truncate(blocks);
  }
}

Status SequenceState::place_block(LayerState& layer, std::size_t block) {
  if (layer.places[block] == BlockPlace::cached) {
    // What was a copy is now needed in its own right; its slot simply changes hands.
    layer.cache->drop(static_cast<UnitKey>(block));
  } else if (layer.places[block] == BlockPlace::absent) {
    TERRACE_ASSIGN(std::byte* const slot, runtime_.take_block(*this));
    layer.device_blocks.set(block, slot);
  }
  layer.places[block] = BlockPlace::resident;
  return {};
}

Status SequenceState::place_needed_blocks(std::size_t length) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    for (std::size_t block = 0; block < layers_[i].places.size(); ++block) {
      if (needs_block(i, block, length)) TERRACE_TRY(place_block(layers_[i], block));
    }
  }
  return {};
}

void SequenceState::place_spare_blocks(std::size_t length) {
  // Blocks that hold tokens of an earlier prompt and were spilled are on the host only.
  const std::size_t begin = divide_up(length_, block_tokens());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    LayerState& layer = layers_[i];
    // Newest first, at the cost of the oldest: up to the end no block is missing behind one that
    // is there.
    for (std::size_t block = layer.places.size(); block-- > begin;) {
      if (layer.places[block] != BlockPlace::absent) continue;
      Result<std::byte*> slot = runtime_.take_spare_block();
      while (!slot && slot.error().code == Errc::out_of_memory && spill_oldest(i, block, length)) {
        slot = runtime_.take_spare_block();
      }
      if (!slot) break;
      layer.device_blocks.set(block, *slot);
      layer.places[block] = BlockPlace::resident;
    }
  }
}

void SequenceState::release_block(LayerState& layer, std::size_t block) {
  if (layer.places[block] == BlockPlace::absent) return;
  if (layer.places[block] == BlockPlace::cached) layer.cache->drop(static_cast<UnitKey>(block));
  runtime_.give_block(layer.device_blocks[block]);
  layer.device_blocks.set(block, nullptr);
  layer.places[block] = BlockPlace::absent;
}

void SequenceState::release_passed_blocks() {
  if (runtime_.options.placement == Placement::resident_first || keeps_everything()) return;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    LayerState& layer = layers_[i];
    const std::size_t passed = window_of(i, length_).begin / block_tokens();
    for (std::size_t& block = layer.first_window_block; block < passed; ++block) {
      if (needs_block(i, block, length_)) continue;
      if (layer.places[block] != BlockPlace::resident) continue;
      if (!adopt_block(layer, block)) release_block(layer, block);
    }
  }
}

void SequenceState::release_left_behind(LayerState& layer, std::size_t block) {
  // A prompt left it for the cache to take over with the first step. Cut before that, the window
  // begins elsewhere, and it would be neither the cache's nor ever let go.
  const bool stays = runtime_.options.placement == Placement::resident_first;
  if (!stays && layer.places[block] == BlockPlace::resident) release_block(layer, block);
}

void SequenceState::release_spare_slots(LayerState& layer) {
  for (std::byte* const slot : layer.spare_slots) runtime_.give_block(slot);
  layer.spare_slots.clear();
}

void SequenceState::withdraw_arrivals(LayerState& layer) {
  for (const ArrivingBlock& arrival : layer.arriving) {
    layer.cache->drop(static_cast<UnitKey>(arrival.block));
    runtime_.give_block(arrival.slot);
  }
  layer.arriving.clear();
}

bool SequenceState::spill_oldest(std::size_t layer_number, std::size_t end, std::size_t position) {
  LayerState& layer = layers_[layer_number];
  for (std::size_t block = 0; block < end; ++block) {
    if (layer.places[block] == BlockPlace::absent) continue;
    if (needs_block(layer_number, block, position)) continue;
    // Another sequence's queue may write the block as soon as it is free.
    if (!wait(layer.attended, deadline()) || !wait(layer.refilled, deadline())) return false;
    spill_block(layer, block);
    return true;
  }
  return false;
}

void SequenceState::spill_block(LayerState& layer, std::size_t block) {
  // The cache would have been offered a block that has left the window.
  const bool offered = runtime_.options.placement == Placement::offload && !caches_clusters();
  if (layer.cache != nullptr && (offered || layer.places[block] == BlockPlace::cached)) {
    report_loss();
  }
  release_block(layer, block);
}

bool SequenceState::spill_one(bool own_thread) {
  std::unique_lock lock(mutex, std::defer_lock);
  if (!own_thread && (!lock.try_lock() || phase_ != SequencePhase::idle)) return false;
  if (keeps_everything()) return false;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    LayerState& layer = layers_[i];
    if (!layer.spare_slots.empty() && wait(layer.attended, deadline()) &&
        wait(layer.refilled, deadline())) {
      release_spare_slots(layer);
      return true;
    }
    if (spill_oldest(i, layer.places.size(), length_)) return true;
  }
  return std::any_of(layers_.begin(), layers_.end(),
                     [&](LayerState& layer) { return spill_clusters(layer); });
}

Status SequenceState::load_needed_blocks() {
  const std::size_t blocks = divide_up(length_, block_tokens());
  std::vector<LoadingBlock> loading;
  Status loaded;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    LayerState& layer = layers_[i];
    layer.first_window_block = window_of(i, length_).begin / block_tokens();
    for (std::size_t block = 0; loaded && block < blocks; ++block) {
      if (!needs_block(i, block, length_)) {
        release_left_behind(layer, block);
        continue;
      }
      if (layer.places[block] != BlockPlace::absent) {
        loaded = place_block(layer, block);
        continue;
      }
      const Result<std::byte*> slot = runtime_.take_block(*this);
      if (slot) loading.push_back({&layer, block, *slot});
      loaded = slot.map([](std::byte*) {});
    }
  }
  if (loaded) loaded = load_blocks(loading);
  // Only what has arrived is there. A slot that is still being written is kept for later refills,
  // which come behind that.
  const bool under_way = !loaded && loaded.error().code == Errc::not_ready;
  for (const LoadingBlock& one : loading) {
    if (loaded) {
      one.layer->device_blocks.set(one.block, one.slot);
      one.layer->places[one.block] = BlockPlace::resident;
    } else if (under_way) {
      one.layer->spare_slots.push_back(one.slot);
    } else {
      runtime_.give_block(one.slot);
    }
  }
  if (loaded) report_load(loading);
  return loaded;
}

Status SequenceState::load_blocks(std::span<const LoadingBlock> loading) {
  if (loading.empty()) return {};
  std::vector<CopyExtent> extents;
  for (const LoadingBlock& one : loading) {
    extents.push_back({one.slot, one.layer->host_blocks[one.block], runtime_.block_bytes()});
  }
  TERRACE_ASSIGN(const Ticket loaded, refill_queue_->copy(Phase::refill, extents));
  for (const LoadingBlock& one : loading) one.layer->refilled = loaded;
  counters_.bytes.refill += extents.size() * runtime_.block_bytes();
  return wait(loaded, deadline());
}

Status SequenceState::reserve_selection(LayerState& layer) {
  const std::size_t words = lists() * (list_rows() + 2) + 1;
  const AllocationRequest request{.bytes = words * sizeof(std::uint32_t),
                                  .purpose = Purpose::staging};
  if (layer.selection_host) return {};
  TERRACE_ASSIGN(layer.selection, runtime_.backend->allocate(request));
  AllocationRequest on_host = request;
  on_host.tier = Tier::host;
  TERRACE_ASSIGN(layer.selection_host, runtime_.backend->allocate(on_host));
  return {};
}

SelectionBuffers SequenceState::selection_buffers(const Buffer& buffer) const noexcept {
  auto* const words = buffer.as<std::uint32_t>();
  const std::size_t ids = lists() * list_rows();
  std::uint32_t* const counts = words + ids;
  std::uint32_t* const pseudo_counts = counts + lists() + 1;
  return {.ids = words,
          .counts = counts,
          .missed_count = counts + lists(),
          .pseudo_counts = pseudo_counts};
}

Status SequenceState::reserve_seen(std::size_t length) {
  if (runtime_.policy->traits().lists == ListScope::kv_head || length <= step_.positions) return {};
  Backend& backend = *runtime_.backend;
  const std::size_t room = with_room(length);
  const std::size_t bytes = runtime_.shape().kv_heads * room * sizeof(std::uint32_t);
  step_.positions = 0;
  TERRACE_TRY(reserve_buffer(backend, step_.seen, bytes, Purpose::staging));
  TERRACE_TRY(reserve_buffer(backend, step_.seen_epoch, sizeof(std::uint32_t), Purpose::staging));
  TERRACE_ASSIGN(Buffer zeros, backend.allocate({.bytes = bytes, .tier = Tier::host}));
  std::memset(zeros.data(), 0, bytes);
  const CopyExtent extents[] = {{step_.seen.data(), zeros.data(), bytes},
                                {step_.seen_epoch.data(), zeros.data(), sizeof(std::uint32_t)}};
  TERRACE_TRY(copy_now(*index_queue_, Phase::update, extents, zeros));
  step_.positions = room;
  return {};
}

Status SequenceState::copy_now(Queue& queue, Phase phase, std::span<const CopyExtent> extents,
                               Buffer& on_host) {
  TERRACE_ASSIGN(const Ticket copied, queue.copy(phase, extents));
  const Status done = wait(copied, deadline());
  if (!done) abandoned_.push_back(std::move(on_host));
  return done;
}

Status SequenceState::reserve_pseudo_entries(std::size_t length) {
  if (runtime_.policy->pseudo_capacity(length) <= step_.pseudo_entries) return {};
  const std::size_t entries = runtime_.policy->pseudo_capacity(with_room(length));
  step_.pseudo_entries = 0;
  Backend& backend = *runtime_.backend;
  TERRACE_TRY(reserve_buffer(backend, step_.pseudo_rows, lists() * entries * sizeof(std::byte*),
                             Purpose::staging));
  TERRACE_TRY(reserve_buffer(backend, step_.pseudo_bias, lists() * entries * sizeof(float),
                             Purpose::staging));
  step_.pseudo_entries = entries;
  return {};
}

Status SequenceState::reserve_step_buffers(std::size_t length) {
  Backend& backend = *runtime_.backend;
  const KvShape& shape = runtime_.shape();
  const bool everything = keeps_everything() || runtime_.options.dense_layers > 0 ||
                          runtime_.options.when == RetrievalWhen::spilled;
  if (split_.selected > 0) TERRACE_TRY(reserve_pseudo_entries(length));
  const std::size_t pseudo = step_.pseudo_entries;
  const std::size_t entries =
      everything ? length + 1 + pseudo : split_.sinks + split_.window + 1 + list_rows() + pseudo;
  if (entries > step_.entries) {
    const std::size_t room = everything ? with_room(entries) : entries;
    step_.entries = 0;
    TERRACE_TRY(reserve_buffer(backend, step_.attention_scratch,
                               attention_scratch_floats(shape, room) * sizeof(float),
                               Purpose::staging));
    step_.entries = room;
  }
  if (!selects() || split_.selected == 0) return {};
  for (LayerState& layer : layers_) TERRACE_TRY(reserve_selection(layer));
  TERRACE_TRY(reserve_seen(length));
  const std::size_t rows = lists() * list_rows();
  if (caches_clusters()) {
    for (LayerState& layer : layers_) {
      TERRACE_TRY(
          reserve_buffer(backend, layer.staging, rows * shape.row_bytes(), Purpose::staging));
    }
  } else {
    TERRACE_TRY(reserve_buffer(backend, step_.staging, rows * shape.row_bytes(), Purpose::staging));
  }
  TERRACE_TRY(reserve_buffer(backend, step_.rows, rows * sizeof(std::byte*), Purpose::staging));
  TERRACE_TRY(reserve_buffer(backend, step_.missed, rows * sizeof(MissedRow), Purpose::staging));
  if (runtime_.policy->traits().gives_logit_bias) {
    TERRACE_TRY(reserve_buffer(backend, step_.logit_bias, rows * sizeof(float), Purpose::staging));
  }
  if (length > step_.candidates) {
    const std::size_t room = with_room(length);
    const std::size_t floats = runtime_.policy->select_scratch_floats(shape, room);
    step_.candidates = 0;
    TERRACE_TRY(
        reserve_buffer(backend, step_.select_scratch, floats * sizeof(float), Purpose::staging));
    step_.candidates = room;
  }
  return {};
}

Status SequenceState::reserve_index(std::size_t tokens_end) {
  const IndexLayout& layout = runtime_.index_layout;
  if (layout.empty() || split_.selected == 0) return {};
  const std::size_t first = sinks_at(tokens_end).end;
  const std::size_t chunks = divide_up(tokens_end - first, layout.chunk_tokens);
  if (chunks == 0) return {};
  for (const LayerState& layer : layers_) {
    if (layer.index.host.chunk_count() < chunks) TERRACE_TRY(wait(layer.index.coded, deadline()));
    if (layer.index.device.chunk_count() < chunks) {
      TERRACE_TRY(wait(layer.index.uploaded, deadline()));
    }
  }
  const auto reserve_all = [&](IndexMemory LayerIndex::* memory) -> Status {
    for (std::size_t i = runtime_.options.dense_layers; i < layers_.size(); ++i) {
      TERRACE_TRY((layers_[i].index.*memory).reserve(*runtime_.backend, layout, chunks));
    }
    return {};
  };
  TERRACE_TRY(reserve_all(&LayerIndex::host));
  if (runtime_.options.index_residency == IndexResidency::host) index_streamed_ = true;
  if (!index_streamed_) {
    const Status resident = reserve_all(&LayerIndex::device);
    const bool may_stream = runtime_.options.index_residency == IndexResidency::automatic &&
                            phase_ == SequencePhase::idle;
    if (resident || !may_stream) return resident;
    TERRACE_TRY(give_up_resident_indexes());
  }
  return reserve_stages(chunks);
}

Status SequenceState::reserve_stages(std::size_t chunks) {
  const auto reserve = [&]() -> Status {
    for (IndexStage& stage : stages_) {
      TERRACE_TRY(wait(stage.read, deadline()));
      // The table it would move may still be on its way.
      if (stage.memory.chunk_count() < chunks) TERRACE_TRY(wait(stage.streamed, deadline()));
      TERRACE_TRY(stage.memory.reserve(*runtime_.backend, runtime_.index_layout, chunks));
    }
    return {};
  };
  const Status reserved = reserve();
  if (reserved || reserved.error().code != Errc::out_of_memory) return reserved;
  // One that grew would leave the other none: both are given up, and steps reserve smaller ones.
  for (const IndexStage& stage : stages_) {
    TERRACE_TRY(wait(stage.streamed, deadline()));
    TERRACE_TRY(wait(stage.read, deadline()));
  }
  stages_ = {};
  indexes_ready_ = false;
  return reserved;
}

void SequenceState::trim_indexes() {
  const IndexLayout& layout = runtime_.index_layout;
  if (layout.empty()) return;
  const std::size_t chunks = divide_up(length_ - sinks_at(length_).end, layout.chunk_tokens);
  for (LayerState& layer : layers_) {
    layer.index.host.trim(layout, chunks);
    layer.index.device.trim(layout, chunks);
  }
}

Status SequenceState::give_up_resident_indexes() {
  for (const LayerState& layer : layers_) TERRACE_TRY(wait(layer.index.uploaded, deadline()));
  forget_uploads();
  for (LayerState& layer : layers_) layer.index.device.reset();
  index_streamed_ = true;
  indexes_ready_ = false;  // nothing is on its way for the first layer
  return {};
}

void SequenceState::make_indexes_resident() {
  if (!settle_queues()) return;
  stages_ = {};
  index_streamed_ = false;
  if (restore_index()) return;
  for (LayerState& layer : layers_) layer.index.stale = true;
}

Status SequenceState::reclaiming(FunctionRef<Status()> reserve) {
  const auto lacks_memory = [](const Status& reserved) {
    return !reserved && reserved.error().code == Errc::out_of_memory;
  };
  Status reserved = reserve();
  // Once: what a failed try gives back to the pools could be trimmed for ever.
  if (lacks_memory(reserved) && runtime_.trim_pools()) reserved = reserve();
  while (lacks_memory(reserved) && runtime_.spill(*this)) reserved = reserve();
  return reserved;
}

Status SequenceState::reclaiming_for(std::size_t length, FunctionRef<Status()> reserve) {
  TERRACE_TRY(find_pages(divide_up(length, block_tokens())));
  return reclaiming(reserve);
}

void SequenceState::give_up_device_memory() {
  leave_cache();
  for (LayerState& layer : layers_) {
    withdraw_arrivals(layer);
    release_spare_slots(layer);
    drop_clusters(layer);
    release_unused_blocks(layer);
    layer.slots.reset();
    layer.staging.reset();
    for (std::size_t block = 0; block < layer.places.size(); ++block) release_block(layer, block);
    layer.index.device.reset();
    layer.selection.reset();
    layer.selection_host.reset();
    layer.selected = false;
  }
  step_ = {};
  stages_ = {};
}

}  // namespace terrace
