#include "sequence_rows.hpp"

#include <algorithm>

#include "layer/layer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

Status SequenceRows::check_pages(std::size_t length) const {
  if (plan_.keeps_everything()) return {};
  std::size_t missing = 0;
  const std::size_t blocks = divide_up(length, plan_.block_tokens());
  for (const auto& layer : layers_) missing += layer->rows.missing_pages(blocks);
  return missing > 0 ? memory_.host.pages().check_room(missing) : Status{};
}

Status SequenceRows::reclaiming_for(std::size_t length, FunctionRef<Status()> reserve) const {
  // Pages taken for a prompt that is then refused would stay with the pool, and could fill all
  // memory.
  const auto reserve_all = [&]() -> Status {
    TERRACE_TRY(check_pages(length));
    return reserve();
  };
  return memory_.make_room(reserve_all, HostRoom::pages);
}

Status SequenceRows::reserve_positions(std::size_t length) {
  for (const auto& layer : layers_) TERRACE_TRY(layer->reserve_positions(length));
  return {};
}

Status SequenceRows::own_blocks(std::size_t begin, std::size_t end) {
  for (const auto& layer : layers_) {
    for (std::size_t block = begin; block < end; ++block) TERRACE_TRY(layer->own_block(block));
  }
  return {};
}

Status SequenceRows::place_blocks(std::size_t begin, std::size_t end) {
  for (const auto& layer : layers_) {
    for (std::size_t block = begin; block < end; ++block) TERRACE_TRY(layer->place_block(block));
  }
  return {};
}

Status SequenceRows::place_needed(std::size_t begin, std::size_t position) {
  for (const auto& layer : layers_) {
    for (std::size_t block = begin; block < layer->rows.blocks(); ++block) {
      if (layer->needs_block(block, position)) TERRACE_TRY(layer->place_block(block));
    }
  }
  return {};
}

void SequenceRows::place_spare(std::size_t position) {
  // Blocks that hold tokens of an earlier prompt and were spilled are on the host only.
  const std::size_t begin = divide_up(progress_.length(), plan_.block_tokens());
  for (const auto& layer : layers_) {
    // Newest first, at the cost of the oldest: from the first present block to the end, no block is
    // missing.
    for (std::size_t block = layer->rows.blocks(); block-- > begin;) {
      if (!layer->rows.absent(block)) continue;
      Result<std::byte*> slot = memory_.pools.blocks->take();
      while (!slot && slot.error().code == Errc::out_of_memory &&
             layer->spill_oldest(block, position)) {
        slot = memory_.pools.blocks->take();
      }
      if (!slot) break;
      layer->rows.put(block, *slot, BlockPlace::resident);
    }
  }
}

Status SequenceRows::load_needed() {
  std::vector<Loading> loading;
  Status loaded;
  for (const auto& layer : layers_) {
    if (loaded) loaded = take_needed(*layer, loading);
  }
  if (loaded) loaded = load(loading);
  // Only blocks that have arrived are there. A slot that is still being written is kept for later
  // refills, which come after that write.
  const bool under_way = !loaded && loaded.error().code == Errc::not_ready;
  for (const Loading& one : loading) {
    if (loaded) {
      one.layer->rows.put(one.block, one.slot, BlockPlace::resident);
    } else if (under_way) {
      one.layer->rows.spare_slots.push_back(one.slot);
    } else {
      memory_.pools.blocks->give(one.slot);
    }
  }
  if (loaded) note_load(loading);
  return loaded;
}

Status SequenceRows::take_needed(Layer& layer, std::vector<Loading>& loading) {
  const std::size_t length = progress_.length();
  const std::size_t blocks = divide_up(length, plan_.block_tokens());
  layer.rows.first_window_block = layer.window_at(length).begin / plan_.block_tokens();
  for (std::size_t block = 0; block < blocks; ++block) {
    if (!layer.needs_block(block, length)) {
      layer.release_left_behind(block);
    } else if (!layer.rows.absent(block)) {
      TERRACE_TRY(layer.place_block(block));
    } else {
      TERRACE_ASSIGN(std::byte* const slot, memory_.take_block());
      loading.push_back({&layer, block, slot});
    }
  }
  return {};
}

Status SequenceRows::load(std::span<const Loading> loading) {
  if (loading.empty()) return {};
  const Status enqueued = load_layers(loading);
  // Copies of some layers may be under way after a failure, too.
  TERRACE_ASSIGN(const Ticket loaded, work_.lanes.refill().record());
  TERRACE_TRY(work_.await(WaitReason::refill, loaded));
  return enqueued;
}

Status SequenceRows::load_layers(std::span<const Loading> loading) {
  while (!loading.empty()) {
    const auto of_other = [&](const Loading& one) { return one.layer != loading.front().layer; };
    const auto end = std::ranges::find_if(loading, of_other);
    const auto count = static_cast<std::size_t>(end - loading.begin());
    TERRACE_TRY(load_layer(loading.first(count)));
    loading = loading.subspan(count);
  }
  return {};
}

Status SequenceRows::load_layer(std::span<const Loading> loading) {
  Layer& layer = *loading.front().layer;
  const std::size_t bytes = plan_.block_bytes();
  std::vector<std::uint32_t> blocks;
  for (const Loading& one : loading) blocks.push_back(static_cast<std::uint32_t>(one.block));
  TERRACE_ASSIGN(const HostRows rows, layer.host_rows(blocks));
  std::vector<CopyExtent> extents;
  for (const Loading& one : loading) extents.push_back({one.slot, rows.page(one.block), bytes});
  TERRACE_ASSIGN(layer.tickets().refilled, work_.lanes.refill().copy(Phase::refill, extents));
  work_.counters.bytes.refill += extents.size() * bytes;
  return {};
}

void SequenceRows::note_load(std::span<const Loading> loaded) const {
  if (!work_.journal.listens()) return;
  for (const auto& layer : layers_) {
    const auto blocks =
        static_cast<std::size_t>(std::ranges::count(loaded, layer.get(), &Loading::layer));
    work_.journal.note_load({.layer = layer->id(),
                             .position = progress_.length(),
                             .window_begin = layer->window_at(progress_.length()).begin,
                             .loaded_bytes = blocks * plan_.block_bytes()});
  }
}

void SequenceRows::hand_over_passed() {
  if (plan_.options.placement == Placement::resident_first || plan_.keeps_everything()) {
    return;
  }
  for (const auto& layer : layers_) layer->hand_over_passed_blocks();
}

bool SequenceRows::spill_one() {
  if (plan_.keeps_everything()) return false;
  return std::ranges::any_of(layers_, [](const auto& layer) { return layer->spill_one(); }) ||
         std::ranges::any_of(layers_, [](const auto& layer) { return layer->cache->spill(); });
}

void SequenceRows::join(Company& company) {
  company.push_back(this);
  company_ = &company;
}

void SequenceRows::leave() noexcept {
  if (company_ == nullptr) return;
  std::erase(*company_, this);
  company_ = nullptr;
}

Result<std::size_t> SequenceRows::send_away(const RowsToSend& rows) {
  const std::size_t count = rows.region ? SIZE_MAX : offload::PageMover::batch_pages;
  const Result<std::size_t> own = send_own_away(rows, count);
  if (company_ == nullptr || (!rows.region && own.value_or(0) > 0)) return own;
  for (SequenceRows* const other : *company_) {
    if (other == this) continue;
    const Result<std::size_t> sent = other->send_own_away(rows, count);
    if (!rows.region && sent.value_or(0) > 0) return sent;
  }
  return own;
}

Result<std::size_t> SequenceRows::send_own_away(const RowsToSend& rows, std::size_t count) {
  // The last block may still be written.
  const std::size_t full = progress_.length() / plan_.block_tokens();
  const Deadline all(rows.patient ? work_.deadline : Duration{});
  std::vector<LayerRows::IdlePage> idle;
  for (const auto& layer : layers_) {
    if (layer->pages_are_unread(all.left())) layer->rows.list_idle(full, idle);
  }
  std::erase_if(idle, [&](const LayerRows::IdlePage& page) {
    return rows.region && page.region != *rows.region;
  });
  if (idle.size() > count) {
    const auto last = idle.begin() + static_cast<std::ptrdiff_t>(count);
    std::ranges::nth_element(idle, last, {}, &LayerRows::IdlePage::wanted);
    idle.erase(last, idle.end());
  }
  std::size_t left = 0;
  for (std::span<const LayerRows::IdlePage> rest = idle; !rest.empty();) {
    const std::size_t batch = std::min(rest.size(), offload::PageMover::batch_pages);
    TERRACE_ASSIGN(const LayerRows::Departure departure, LayerRows::send_away(rest.first(batch)));
    work_.counters.store.written += departure.written * plan_.block_bytes();
    left += departure.left;
    rest = rest.subspan(batch);
  }
  return left;
}

void SequenceRows::relieve_host() {
  send_excess_away();
  copy_ahead();
}

void SequenceRows::send_excess_away() {
  if (memory_.host.mover() == nullptr) return;
  const std::size_t limit = memory_.host.pages_limit();
  std::size_t most = offload::PageMover::batch_pages;
  for (std::size_t before = SIZE_MAX;;) {
    const std::size_t pages = memory_.host.pages().pages_in_use();
    if (pages <= limit) return;
    // Pages that other sequences share make no room as they go: soon all of them are looked at.
    const bool made_room = pages < before;
    if (!made_room) most *= 2;
    const std::size_t count = made_room ? std::min(pages - limit, most) : most;
    if (send_own_away({}, count).value_or(0) == 0) return;
    before = pages;
  }
}

void SequenceRows::copy_ahead() {
  // As many as a fast device writes during a step or two; so many stay shared on the host.
  constexpr std::size_t under_way_max = 16 * offload::PageMover::batch_pages;
  if (!memory_.host.is_filling()) return;
  const std::size_t under_way = memory_.host.mover()->copies_under_way();
  const std::size_t full = progress_.length() / plan_.block_tokens();
  std::vector<LayerRows::IdlePage> pages;
  for (const auto& layer : layers_) {
    if (under_way + pages.size() >= under_way_max) break;
    if (!poll(layer->rows.tickets.offloaded).value_or(false)) continue;
    layer->rows.list_uncopied(full, under_way_max - under_way - pages.size(), pages);
  }
  for (std::span<const LayerRows::IdlePage> rest = pages; !rest.empty();) {
    const std::size_t count = std::min(rest.size(), offload::PageMover::batch_pages);
    const std::size_t copied = LayerRows::copy(rest.first(count));
    work_.counters.store.written += copied * plan_.block_bytes();
    if (copied == 0) return;  // the store is busy
    rest = rest.subspan(count);
  }
}

void SequenceRows::trim(std::size_t blocks) {
  for (const auto& layer : layers_) {
    layer->drop_blocks_from(blocks);
    layer->rows.trim(blocks);
  }
}

std::size_t SequenceRows::blocks() const noexcept { return layers_.front()->rows.blocks(); }

}  // namespace terrace
