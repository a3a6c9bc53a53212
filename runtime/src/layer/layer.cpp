#include "layer.hpp"

#include <algorithm>
#include <numeric>

#include "terrace/core/bytes.hpp"

namespace terrace {

Layer::Layer(const SequenceServices& services, std::size_t layer)
    : number(layer),
      rows(services.plan, services.work.backend, *services.memory.pools.blocks,
           services.memory.host),
      plan_(services.plan),
      progress_(services.progress),
      work_(services.work),
      memory_(services.memory) {}

TokenRange Layer::window_at(std::size_t position) const noexcept {
  TokenRange at = own_window_at(position);
  // Tokens of a prompt attend to those before them in the prompt, and select of the rest.
  if (progress_.in_selecting_prompt()) {
    at.begin = std::min(at.begin, own_window_at(progress_.prompt().begin).begin);
  }
  return at;
}

std::size_t Layer::borrowed_at(std::size_t position) const noexcept {
  if (progress_.in_selecting_prompt()) position = progress_.prompt().begin;
  return progress_.window_at(position).begin - own_window_at(position).begin;
}

TokenRange Layer::own_window_at(std::size_t position) const noexcept {
  TokenRange at = progress_.window_at(position);
  const TokenRange& indexed = index.image.coverage.tokens();
  if (plan_.is_dense(number)) {
    at.begin = progress_.sinks_at(position).end;
  } else if (plan_.drops()) {
    at.begin = progress_.undecided_from(position);
  } else if (plan_.traits().batch_tokens_max > 1 && !indexed.empty() && at.begin > indexed.end) {
    at.begin -= std::min(at.begin - indexed.end, progress_.split_at(position).selected);
  }
  return at;
}

bool Layer::needs_block(std::size_t block, std::size_t position) const noexcept {
  const std::size_t begin = block * plan_.block_tokens();
  return begin < progress_.sinks_at(position).end ||
         begin + plan_.block_tokens() > window_at(position).begin;
}

void Layer::reserve_tokens(std::size_t count) {
  if (tokens_.size() < count) tokens_.resize(count);
  current_ = 0;
}

void Layer::forget_tokens() noexcept {
  for (AttendedToken& token : tokens_) token.selected = false;
}

void Layer::open_token(std::size_t position) {
  AttendedToken& now = token();
  now.sinks = progress_.sinks_at(position);
  now.window = window_at(position);
  if (attends_to_all(position)) now.window.begin = now.sinks.end;
  now.selected = selection_applies();
}

void Layer::open_all_tokens(std::size_t end) noexcept {
  AttendedToken& all = token();
  all.selected = false;
  all.sinks = {};
  all.window = {0, end};
}

bool Layer::selection_applies() const noexcept {
  return plan_.selects() && progress_.list_rows() > 0 && !index.image.coverage.tokens().empty() &&
         !candidates().empty();
}

bool Layer::attends_to_all(std::size_t position) const noexcept {
  if (!plan_.selects() || plan_.options.when == RetrievalWhen::always) return false;
  return rows.all_resident(position / plan_.block_tokens() + 1);
}

Status Layer::reserve_positions(std::size_t length) {
  const std::size_t blocks = divide_up(length, plan_.block_tokens());
  TERRACE_TRY(rows.reserve(blocks));
  // Coding, and changes of cached clusters, read the table as it was when they were enqueued.
  const auto is_done = [](const Ticket& ticket) { return poll(ticket).value_or(true); };
  if (is_done(index.coded) && is_done(rows.tickets.refilled)) rows.forget_old_tables();
  return {};
}

Result<HostRows> Layer::host_rows(std::span<const std::uint32_t> blocks) {
  HostRows kept(rows, blocks);
  if (!rows.has_mover()) return kept;
  const bool waits = rows.away_pages() > 0;
  const TimePoint begin = work_.clock().now();
  std::vector<LayerRows::Arrival> arrivals;
  rows.list_away(kept.blocks(), arrivals);
  const Status brought =
      memory_.make_room([&] { return LayerRows::bring(arrivals); }, HostRoom::pages);
  const std::uint64_t read = LayerRows::count_read(arrivals) * plan_.block_bytes();
  if (waits) work_.count_wait(WaitReason::rows, begin);
  if (read > 0) memory_.host.note_read(read, begin, work_.clock().now());
  work_.counters.store.read += read;
  if (brought) return kept;
  // All pages that could leave have left: the caller has nothing to try again.
  Error error = brought.error();
  error.lacks.reset();
  return tl::unexpected(error);
}

Result<HostRows> Layer::host_rows(TokenRange tokens) {
  if (!rows.has_mover() || tokens.empty()) return HostRows(rows, {});
  std::vector<std::uint32_t> blocks(divide_up(tokens.end, plan_.block_tokens()) -
                                    tokens.begin / plan_.block_tokens());
  std::iota(blocks.begin(), blocks.end(),
            static_cast<std::uint32_t>(tokens.begin / plan_.block_tokens()));
  return host_rows(blocks);
}

bool Layer::pages_are_unread(Duration patience) const {
  const auto is_done = [&](WaitReason reason, const Ticket& ticket) {
    if (patience == Duration{}) return poll(ticket).value_or(false);
    return work_.await(reason, ticket, patience).has_value();
  };
  const LayerTickets& work = rows.tickets;
  return is_done(WaitReason::rows, work.offloaded) && is_done(WaitReason::compute, work.attended) &&
         is_done(WaitReason::compute, work.fetched) && is_done(WaitReason::refill, work.refilled) &&
         is_done(WaitReason::index, index.coded) &&
         is_done(WaitReason::retention, retention.decided);
}

Status Layer::place_block(std::size_t block) {
  if (rows.place(block) == BlockPlace::cached) {
    // A copy is now needed in its own right; its memory simply changes hands.
    cache->forget_block(block);
    rows.keep_as(block, BlockPlace::resident);
  } else if (rows.absent(block)) {
    TERRACE_ASSIGN(std::byte* const slot, memory_.take_block());
    rows.put(block, slot, BlockPlace::resident);
  }
  return {};
}

void Layer::drop_block(std::size_t block) {
  if (rows.place(block) == BlockPlace::cached) cache->forget_block(block);
  rows.release(block);
}

void Layer::drop_blocks_from(std::size_t block) {
  for (; block < rows.blocks(); ++block) drop_block(block);
}

void Layer::drop_copies_from(std::size_t block) {
  cache->drop_unsettled();
  for (; block < rows.blocks(); ++block) {
    if (rows.place(block) == BlockPlace::cached) drop_block(block);
  }
}

void Layer::hand_over_passed_blocks() {
  const std::size_t passed = window_at(progress_.length()).begin / plan_.block_tokens();
  for (std::size_t& block = rows.first_window_block; block < passed; ++block) {
    if (needs_block(block, progress_.length())) continue;
    if (rows.place(block) != BlockPlace::resident) continue;
    if (!cache->adopt_block(block)) rows.release(block);
  }
}

void Layer::release_left_behind(std::size_t block) {
  const bool stays = plan_.options.placement == Placement::resident_first;
  if (!stays && rows.place(block) == BlockPlace::resident) rows.release(block);
}

bool Layer::at_rest() const {
  return work_.await(WaitReason::compute, rows.tickets.attended) &&
         work_.await(WaitReason::refill, rows.tickets.refilled);
}

bool Layer::spill_oldest(std::size_t end, std::size_t position) {
  for (std::size_t block = 0; block < end; ++block) {
    if (rows.absent(block) || needs_block(block, position)) continue;
    if (!at_rest()) return false;
    // The cache would have been offered a block that has left the window.
    const bool offered = plan_.options.placement == Placement::offload;
    if (cache->keeps_blocks() && (offered || rows.place(block) == BlockPlace::cached)) {
      work_.journal.note_loss();
    }
    drop_block(block);
    return true;
  }
  return false;
}

bool Layer::spill_one() {
  if (!rows.spare_slots.empty() && at_rest()) {
    rows.release_spare_slots();
    return true;
  }
  return spill_oldest(rows.blocks(), progress_.length());
}

Status Layer::own_block(std::size_t block) {
  if (plan_.keeps_everything()) return {};
  // The store's copy of a block that was cut, and is continued, is stale from now on.
  if (rows.is_away(block)) {
    const auto number = static_cast<std::uint32_t>(block);
    TERRACE_TRY(host_rows(std::span(&number, 1)).map([](const HostRows&) {}));
  }
  rows.forget_stored(block);
  if (!rows.is_shared(block)) return {};
  // Work that reads the page left behind, to index or to fetch its rows, must be done with it.
  if (cache->reads_host_table())
    TERRACE_TRY(work_.await(WaitReason::refill, rows.tickets.refilled));
  for (const auto& [reason, ticket] : {std::pair{WaitReason::index, index.coded},
                                       std::pair{WaitReason::retention, retention.decided}}) {
    const Status read = work_.await(reason, ticket);
    if (!read && read.error().code == Errc::not_ready) return read;
  }
  return rows.own(block);
}

void Layer::give_up_device_memory() {
  cache->give_up_device_memory();
  retention.entries.give_up_device_memory();
  rows.release_spare_slots();
  drop_blocks_from(0);
  tokens_.clear();
  reserve_tokens(1);
}

}  // namespace terrace
