#include "sequence_state.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "step/tensor_checks.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/drain_to_end.hpp"

namespace terrace {
namespace {

/// A bound on the pages that reading rows keeps on the host at once.
constexpr std::size_t rows_read_at_once = 256;

}  // namespace

SequenceState::SequenceState(std::shared_ptr<RuntimeState> runtime, Lanes lanes)
    : runtime_(std::move(runtime)), parts(*runtime_, *this, std::move(lanes)) {}

Result<std::unique_ptr<SequenceState>> SequenceState::create(
    std::shared_ptr<RuntimeState> runtime) {
  const bool refreshes = runtime->plan.options.refresh.tokens > 0;
  TERRACE_ASSIGN(Lanes lanes, Lanes::open(*runtime->backend, refreshes));
  std::unique_ptr<SequenceState> state(new SequenceState(std::move(runtime), std::move(lanes)));
  state->runtime_->reclaimer.enter(*state);
  if (CounterFile* const file = state->runtime_->counter_file.get()) file->enter_sequence();
  return state;
}

SequenceState::~SequenceState() {
  parts.work.journal.note_close();
  runtime_->reclaimer.leave(*this);
  parts.indexes.builder.cancel();
  parts.come_to_rest();
  // Work that outlasted the deadline still uses the sequence's memory. The end of a queue cancels
  // what is enqueued and waits for what runs; then compute waits for nothing of the sequence any
  // more.
  parts.work.lanes.close();
  if (parts.work.compute != nullptr) drain_to_end(*parts.work.compute, parts.work.deadline);
  parts.give_up_device_memory();
  for (const auto& layer : parts.layers) layer->rows.close();
  runtime_->add_counters(parts.work);
  if (CounterFile* const file = runtime_->counter_file.get()) file->leave_sequence();
  runtime_->publish_counters();
}

bool SequenceState::is_idle() const noexcept {
  return parts.progress.phase() == SequencePhase::idle;
}

bool SequenceState::spill_one() { return parts.rows.spill_one(); }

bool SequenceState::may_send_rows_away() const noexcept {
  return is_idle() || parts.progress.phase() == SequencePhase::paused;
}

Result<std::size_t> SequenceState::send_rows_away(const RowsToSend& rows) {
  return parts.rows.send_away(rows);
}

Status SequenceState::begin_prompt(std::size_t tokens) {
  TERRACE_TRY(parts.progress.require(SequencePhase::idle));
  TERRACE_TRY(parts.progress.check_length(tokens));
  if (tokens == 0) return end_prompt();
  // Tokens before the prompt do not wait for it to be indexed: it may select of them.
  if (!parts.progress.in_prompt()) TERRACE_TRY(parts.recovering(participant.prepare_prompt()));
  for (const auto& layer : parts.layers) {
    if (!parts.progress.prompt_comes() || !layer->index.hints) layer->index.hints.emplace();
  }
  parts.progress.announce_prompt(tokens);
  return {};
}

Status SequenceState::end_prompt() {
  return parts.progress.cut_prompt() ? participant.end_prompt() : Status{};
}

bool SequenceState::index_ready() const {
  return parts.indexes.builder.ready() && parts.retention.ready() && !parts.progress.prompt_waits();
}

Status SequenceState::await_indexes() {
  const bool deciding = parts.retention.deciding();
  TERRACE_TRY(await_prompt_index());
  const bool has_all_rows = readable_tokens() == parts.progress.length();
  if (deciding || parts.progress.phase() != SequencePhase::idle || !has_all_rows) return {};
  // A decision that found no memory when it was due is made now: a cut must not change it.
  TERRACE_TRY(parts.recovering(participant.decide_if_due()));
  return parts.recovering(parts.retention.await());
}

Status SequenceState::await_prompt_index() {
  TERRACE_TRY(parts.await_indexes());
  if (!parts.progress.prompt_waits()) return {};
  TERRACE_TRY(participant.end_prompt());
  return parts.await_indexes();
}

Status SequenceState::truncate(std::size_t length) {
  TERRACE_TRY(parts.progress.require(SequencePhase::idle));
  if (length > parts.progress.length()) {
    return fail(Errc::invalid_argument, "{} tokens cannot be kept of {}", length,
                parts.progress.length());
  }
  TERRACE_TRY(length > 0 ? await_indexes() : await_prompt_index());
  TERRACE_TRY(parts.retention.check_cut(length));
  // A prompt that is cut will not come whole: the rest of it is another prompt, or decoded.
  TERRACE_TRY(end_prompt());
  TERRACE_TRY(await_prompt_index());
  if (!parts.come_to_rest()) {
    return fail(Errc::not_ready, "copies are still under way; try again");
  }
  for (const auto& layer : parts.layers) {
    // Positions from `length` on will have other rows: copies of them must not outlive them.
    layer->drop_copies_from(length / parts.plan.block_tokens());
    layer->forget_tokens();
    layer->index.build.hints.cut(parts.plan.shape(), length);
  }
  parts.progress.cut(length);
  if (length < unindexed_prefix) unindexed_prefix = 0;
  parts.retention.cut();
  parts.rows.trim(divide_up(length, parts.plan.block_tokens()));
  if (parts.plan.keeps_everything()) return {};
  parts.indexes.upkeep.cut();
  return parts.load_window();
}

Status SequenceState::pause() {
  TERRACE_TRY(parts.progress.require(SequencePhase::idle));
  if (parts.plan.keeps_everything()) {
    return fail(Errc::unsupported, "policy {} keeps no copy on the host", parts.plan.traits().name);
  }
  TERRACE_TRY(parts.await_indexes());
  if (!parts.come_to_rest()) {
    return fail(Errc::not_ready, "copies are still under way; try again");
  }
  parts.pause();
  return {};
}

Status SequenceState::resume() {
  TERRACE_TRY(parts.progress.require(SequencePhase::paused));
  parts.progress.resume();
  const Status restored = parts.memory.make_room([&]() -> Status {
    TERRACE_TRY(parts.rows.reserve_positions(parts.progress.length()));
    TERRACE_TRY(parts.rows.load_needed());
    TERRACE_TRY(parts.workspace.reserve(parts.progress.length() + 1, parts.layers));
    TERRACE_TRY(parts.indexes.restore());
    TERRACE_TRY(parts.retention.take_over());
    return parts.cache.reserve(parts.progress.length() + 1);
  });
  if (restored) {
    parts.cache.reserve_blocks(parts.progress.length());
  } else {
    parts.pause_or_lose();
  }
  return restored;
}

Result<std::unique_ptr<SequenceState>> SequenceState::fork() {
  TERRACE_TRY(parts.progress.require(SequencePhase::idle));
  TERRACE_TRY(parts.await_indexes());
  TERRACE_TRY(parts.recovering(parts.retention.await_scores()));
  for (const auto& layer : parts.layers) {
    TERRACE_TRY(parts.recovering(parts.work.await(WaitReason::index, layer->index.coded)));
  }
  // Blocks that a refresh reads may change hands from now on.
  if (Queue* const refresh = parts.work.lanes.refresh(); refresh != nullptr) {
    parts.indexes.refresh.cancel();
    TERRACE_TRY(refresh->drain(parts.work.deadline));
    parts.indexes.refresh.stop();
  }
  TERRACE_ASSIGN(std::unique_ptr<SequenceState> twin, create(runtime_));
  twin->unindexed_prefix = unindexed_prefix;
  const std::lock_guard its_lock(twin->mutex);  // others may look for memory in it by now
  twin->parts.progress.begin_as(parts.progress);
  for (std::size_t i = 0; i < parts.layers.size(); ++i) {
    TERRACE_TRY(copy_layer(*parts.layers[i], *twin->parts.layers[i]));
  }
  return twin;
}

Status SequenceState::start_as_twin(const SequenceState& other) {
  const std::lock_guard lock(mutex);
  return parts.plan.keeps_everything() ? copy_blocks(other.parts.layers) : resume();
}

Status SequenceState::copy_blocks(const Layers& source) {
  const std::size_t blocks = divide_up(parts.progress.length(), parts.plan.block_tokens());
  parts.progress.resume();
  const Status placed = parts.memory.make_room([&]() -> Status {
    TERRACE_TRY(parts.rows.reserve_positions(parts.progress.length()));
    return parts.rows.place_blocks(0, blocks);
  });
  TERRACE_TRY(placed);
  std::vector<CopyExtent> extents;
  for (const auto& layer : parts.layers) {
    const LayerRows& from = source[layer->number]->rows;
    for (std::size_t block = 0; block < blocks; ++block) {
      extents.push_back(
          {layer->rows.on_device(block), from.on_device(block), parts.plan.block_bytes()});
    }
  }
  if (extents.empty()) return {};
  TERRACE_ASSIGN(const Ticket copied, parts.work.lanes.refill().copy(Phase::update, extents));
  return parts.work.await(WaitReason::copy, copied);
}

Status SequenceState::copy_layer(Layer& mine, Layer& its) {
  TERRACE_TRY(its.rows.share(mine.rows));
  TERRACE_TRY(its.retention.entries.copy_from(mine.retention.entries, *runtime_->backend));
  TERRACE_TRY(its.retention.queries.copy_from(mine.retention.queries, *runtime_->backend));
  its.retention.scores = mine.retention.scores;
  its.index.hints = mine.index.hints;
  its.index.build.hints = mine.index.build.hints;
  its.index.build.report = mine.index.build.report;
  return mine.index.image.share_with(its.index.image, *runtime_->backend);
}

Status SequenceState::check_rows(LayerId id, HeadId head, std::span<const std::uint32_t> positions,
                                 std::size_t bytes) const {
  const KvShape& shape = parts.plan.shape();
  TERRACE_TRY(parts.progress.require(SequencePhase::idle));
  if (index(id) >= shape.layers || index(head) >= shape.kv_heads) {
    return fail(Errc::invalid_argument, "layer {} of {}, KV head {} of {}", index(id), shape.layers,
                index(head), shape.kv_heads);
  }
  if (bytes != positions.size() * shape.row_bytes()) {
    return fail(Errc::invalid_argument, "{} rows take {} bytes, and the target has {}",
                positions.size(), positions.size() * shape.row_bytes(), bytes);
  }
  const auto behind = [&](std::uint32_t position) { return position >= parts.progress.length(); };
  if (const auto wrong = std::ranges::find_if(positions, behind); wrong != positions.end()) {
    return fail(Errc::invalid_argument, "position {} of {}", *wrong, parts.progress.length());
  }
  const Layer& layer = *parts.layers[index(id)];
  const auto gone = [&](std::uint32_t position) {
    return layer.is_decided(position) &&
           layer.retention.entries.row_of(index(head), position) == nullptr;
  };
  const auto lost = std::ranges::find_if(positions, gone);
  if (lost == positions.end()) return {};
  return fail(Errc::invalid_argument, "position {}: retention has dropped or merged the token",
              *lost);
}

Status SequenceState::read_host_rows(Layer& layer, HeadId head, const SomePositions& some,
                                     std::span<std::byte> target) const {
  const std::size_t bytes = parts.plan.shape().row_bytes();
  std::vector<std::uint32_t> blocks;
  for (const std::size_t i : some.which) {
    blocks.push_back(some.all[i] / static_cast<std::uint32_t>(parts.plan.block_tokens()));
  }
  TERRACE_ASSIGN(const HostRows rows, layer.host_rows(blocks));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::size_t at = some.which[i];
    const std::byte* const page = rows.page(blocks[i]);
    std::memcpy(target.data() + at * bytes, page + layer.rows.row_offset(index(head), some.all[at]),
                bytes);
  }
  return {};
}

Status SequenceState::read_rows(LayerId id, HeadId head, std::span<const std::uint32_t> positions,
                                std::span<std::byte> target) {
  TERRACE_TRY(check_rows(id, head, positions, target.size()));
  Layer& layer = *parts.layers[index(id)];
  const std::size_t bytes = parts.plan.shape().row_bytes();
  const TokenRange middle{parts.progress.sinks_at(parts.progress.length()).end,
                          layer.window_at(parts.progress.length()).begin};
  TERRACE_TRY(parts.work.await(WaitReason::rows, layer.tickets().offloaded));
  std::vector<std::size_t> on_device;  // of `positions`
  std::vector<std::size_t> on_host;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (layer.is_decided(positions[i])) {
      std::memcpy(target.data() + i * bytes,
                  layer.retention.entries.row_of(index(head), positions[i]), bytes);
      continue;
    }
    const std::size_t block = positions[i] / parts.plan.block_tokens();
    (middle.contains(positions[i]) || layer.rows.absent(block) ? on_host : on_device).push_back(i);
  }
  for (std::span<const std::size_t> rest = on_host; !rest.empty();) {
    const std::size_t count = std::min(rest.size(), rows_read_at_once);
    TERRACE_TRY(read_host_rows(layer, head, {positions, rest.first(count)}, target));
    rest = rest.subspan(count);
  }
  if (on_device.empty()) return {};
  TERRACE_TRY(parts.work.await(WaitReason::compute, layer.tickets().attended));
  TERRACE_ASSIGN(Buffer copies, parts.work.backend.allocate(
                                    {.bytes = on_device.size() * bytes, .tier = Tier::host}));
  std::vector<CopyExtent> extents;
  for (const std::size_t i : on_device) {
    const std::byte* const block = layer.rows.on_device(positions[i] / parts.plan.block_tokens());
    extents.push_back({copies.data() + extents.size() * bytes,
                       block + layer.rows.row_offset(index(head), positions[i]), bytes});
  }
  TERRACE_TRY(parts.work.copy_now(parts.work.lanes.offload(), Phase::offload, extents, copies));
  for (std::size_t row = 0; row < on_device.size(); ++row) {
    std::memcpy(target.data() + on_device[row] * bytes, extents[row].target, bytes);
  }
  return {};
}

std::size_t SequenceState::readable_tokens() const noexcept {
  std::size_t tokens = parts.progress.length();
  for (const auto& layer : parts.layers) {
    if (const auto lost = layer->rows.first_lost()) {
      tokens = std::min(tokens, *lost * parts.plan.block_tokens());
    }
  }
  return tokens;
}

StepSelection SequenceState::selection(LayerId id) const noexcept {
  if (index(id) >= parts.layers.size()) return {};
  const Layer& layer = *parts.layers[index(id)];
  const AttendedToken& token = layer.token();
  StepSelection result{.sinks = token.sinks,
                       .window = token.window,
                       .scope = parts.plan.traits().lists,
                       .stride = parts.progress.list_rows()};
  if (token.selected) {
    const SelectionBuffers lists = token.selection.on_host();
    result.ids = {lists.ids, parts.plan.lists() * parts.progress.list_rows()};
    result.counts = {lists.counts, parts.plan.lists()};
  }
  return result;
}

Result<ClusteringReport> SequenceState::clustering() {
  // To wait is to hurry: builds that the rest of a prompt hides would be cut short.
  if (parts.progress.phase() == SequencePhase::step) {
    return fail(Errc::invalid_argument, "a step is under way");
  }
  TERRACE_TRY(parts.await_indexes());
  return parts.indexes.builder.report();
}

void SequenceState::reset_counters() noexcept {
  runtime_->add_counters(parts.work);
  parts.work.counters = parts.work.published = {};
  parts.work.journal.reset_counters();
}

}  // namespace terrace
