#include "sequence_state.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "terrace/core/bytes.hpp"
#include "terrace/core/drain_to_end.hpp"

namespace terrace {

SequenceState::SequenceState(RuntimeState& runtime, Lanes lanes)
    : parts(runtime, *this, std::move(lanes)), alone_(runtime, std::array{&participant}) {}

Result<std::unique_ptr<SequenceState>> SequenceState::create(RuntimeState& runtime) {
  const bool refreshes = runtime.options.refresh.tokens > 0;
  TERRACE_ASSIGN(Lanes lanes, Lanes::open(*runtime.backend, refreshes));
  std::unique_ptr<SequenceState> state(new SequenceState(runtime, std::move(lanes)));
  runtime.enter(*state);
  return state;
}

SequenceState::~SequenceState() {
  SequenceContext& context = parts.context;
  context.journal.note_close();
  runtime().leave(*this);
  parts.indexes.builder.cancel();
  parts.come_to_rest();
  // Work that outlasted the deadline still uses the sequence's memory. The end of a queue cancels
  // what is enqueued and waits for what runs; then compute waits for nothing of the sequence any
  // more.
  context.lanes.close();
  if (context.compute != nullptr) drain_to_end(*context.compute, context.deadline());
  parts.give_up_device_memory();
  for (const auto& layer : parts.layers) layer->rows.close();
}

bool SequenceState::spill_one(bool own_thread) {
  std::unique_lock lock(mutex, std::defer_lock);
  if (!own_thread && (!lock.try_lock() || parts.context.phase != SequencePhase::idle)) return false;
  return parts.rows.spill_one();
}

Status SequenceState::begin_step() {
  step_status() = {};
  return participant.begin(1);
}

Status SequenceState::attend(LayerId layer, const StepInput& input, float* output, Queue& compute) {
  const StepOutput outputs[] = {{.data = output}};
  TERRACE_TRY(alone_.attend(layer, {&input, 1}, outputs, compute));
  return step_status();
}

Result<KvView> SequenceState::gather(LayerId layer, const StepInput& input, Queue& compute) {
  const RetrievalTraits& traits = parts.context.traits();
  if (traits.gives_logit_bias || traits.gives_pseudo_entries) {
    return fail(Errc::unsupported,
                "gather: policy {} needs an attention kernel with a logit bias; use attend",
                traits.name);
  }
  participant.leave_attention_to_engine();
  TERRACE_TRY(alone_.prepare("gather", layer, {&input, 1}, compute));
  TERRACE_TRY(step_status());
  return participant.view();
}

Status SequenceState::end_step() {
  if (parts.context.phase != SequencePhase::step || !participant.all_layers_done()) {
    return fail(Errc::invalid_argument, "end_step: {} of {} layers were attended",
                participant.layers_done(), parts.layers.size());
  }
  alone_.end();
  return step_status();
}

Status SequenceState::abandon_step() {
  if (parts.context.phase != SequencePhase::step) {
    return fail(Errc::invalid_argument, "abandon_step: no step is under way");
  }
  step_status() = {};
  alone_.give_up();
  return step_status();
}

Status SequenceState::begin_prompt(std::size_t tokens) {
  SequenceContext& context = parts.context;
  if (context.phase != SequencePhase::idle) {
    return fail(Errc::invalid_argument, "begin_prompt: the sequence is not idle");
  }
  if (tokens > max_positions - context.length) {
    return fail(Errc::invalid_argument, "begin_prompt: {} tokens and {} more are more than {}",
                context.length, tokens, max_positions);
  }
  context.prompt.end = context.length + tokens;
  if (tokens == 0) return participant.end_prompt();
  if (!context.prompt_comes) {
    // What waits to be indexed does not wait for the prompt. The next step reports what fails.
    static_cast<void>(participant.prepare_next());
    context.prompt.begin = context.length;
    context.prompt_selects = false;
    for (const auto& layer : parts.layers) layer->index.hints.clear();
  }
  context.prompt_comes = context.prompt_given = true;
  if (!context.has_decoded) context.forget_budget();
  context.resolve_budget(context.prompt.end);
  return {};
}

bool SequenceState::index_ready() const {
  return parts.indexes.builder.ready() && !parts.context.prompt_waits();
}

Status SequenceState::await_indexes() {
  TERRACE_TRY(parts.await_indexes());
  if (!parts.context.prompt_waits()) return {};
  TERRACE_TRY(participant.end_prompt());
  return parts.await_indexes();
}

Status SequenceState::truncate(std::size_t length) {
  SequenceContext& context = parts.context;
  if (context.phase != SequencePhase::idle || length > context.length) {
    return fail(Errc::invalid_argument, "truncate to {}: the sequence is not idle, or has only {}",
                length, context.length);
  }
  TERRACE_TRY(parts.await_indexes());
  if (!parts.come_to_rest()) {
    return fail(Errc::not_ready, "truncate: copies are still under way");
  }
  for (const auto& layer : parts.layers) {
    // Positions from `length` on will have other rows: copies of them must not outlive them.
    layer->cache->drop_unsettled();
    layer->drop_cached_from(length / context.block_tokens());
    layer->forget_tokens();
  }
  context.length = length;
  parts.rows.trim(divide_up(length, context.block_tokens()));
  if (context.keeps_everything()) return {};
  parts.indexes.upkeep.cut();
  const Status loaded = parts.rows.load_needed();
  if (loaded) return {};
  parts.pause_or_lose();
  return tl::unexpected(loaded.error().while_doing(
      "truncate: the window could not be loaded; if the sequence is paused, resume() tries again"));
}

Status SequenceState::pause() {
  const SequenceContext& context = parts.context;
  if (context.phase != SequencePhase::idle) {
    return fail(Errc::invalid_argument, "pause: the sequence is not idle");
  }
  if (context.keeps_everything()) {
    return fail(Errc::unsupported, "pause: policy {} keeps no copy on the host",
                context.traits().name);
  }
  TERRACE_TRY(parts.await_indexes());
  if (!parts.come_to_rest()) return fail(Errc::not_ready, "pause: copies are still under way");
  parts.pause();
  return {};
}

Status SequenceState::resume() {
  SequenceContext& context = parts.context;
  if (context.phase != SequencePhase::paused) {
    return fail(Errc::invalid_argument, "resume: the sequence is not paused");
  }
  context.phase = SequencePhase::idle;
  const Status restored = context.reclaiming([&]() -> Status {
    TERRACE_TRY(parts.rows.reserve_positions(context.length));
    TERRACE_TRY(parts.rows.load_needed());
    TERRACE_TRY(parts.workspace.reserve(context.length + 1, parts.layers));
    TERRACE_TRY(parts.indexes.restore());
    return parts.cache.reserve(context.length + 1);
  });
  if (restored) {
    parts.cache.reserve_blocks(context.length);
  } else {
    parts.pause_or_lose();
  }
  return restored;
}

Result<std::unique_ptr<SequenceState>> SequenceState::fork() {
  SequenceContext& context = parts.context;
  if (context.phase != SequencePhase::idle) {
    return fail(Errc::invalid_argument, "fork: the sequence is not idle");
  }
  if (context.keeps_everything()) {
    return fail(Errc::unsupported, "fork: policy {} keeps no copy on the host to share",
                context.traits().name);
  }
  TERRACE_TRY(parts.await_indexes());
  for (const auto& layer : parts.layers) {
    TERRACE_TRY(parts.recovering(context.await(WaitReason::index, layer->index.coded)));
  }
  // Blocks that a refresh reads may change hands from now on.
  if (Queue* const refresh = context.lanes.refresh(); refresh != nullptr) {
    parts.indexes.refresh.cancel();
    TERRACE_TRY(refresh->drain(context.deadline()));
    parts.indexes.refresh.stop();
  }
  TERRACE_ASSIGN(std::unique_ptr<SequenceState> twin, create(runtime()));
  const std::lock_guard its_lock(twin->mutex);  // others may look for memory in it by now
  SequenceContext& its = twin->parts.context;
  its.budget_resolved = context.budget_resolved;
  its.budget_tokens = context.budget_tokens;
  its.split = context.split;
  for (std::size_t i = 0; i < parts.layers.size(); ++i) {
    TERRACE_TRY(copy_layer(*parts.layers[i], *twin->parts.layers[i]));
  }
  its.length = context.length;
  its.prompt = context.prompt;
  its.prompt_comes = context.prompt_comes;
  its.prompt_selects = context.prompt_selects;
  its.prompt_given = context.prompt_given;
  its.has_decoded = context.has_decoded;
  its.phase = SequencePhase::paused;
  return twin;
}

Status SequenceState::copy_layer(const Layer& mine, Layer& its) {
  TERRACE_TRY(its.rows.share(mine.rows));
  its.index.hints = mine.index.hints;
  its.index.build.hints = mine.index.build.hints;
  if (mine.index.coverage.tokens.empty()) return {};
  SequenceContext& context = parts.context;
  TERRACE_TRY(its.index.host.copy_from(mine.index.host, context.backend(), context.layout()));
  its.index.coverage = mine.index.coverage;
  its.index.build.report = mine.index.build.report;
  return {};
}

Status SequenceState::read_row(LayerId id, HeadId head, std::size_t position,
                               std::span<std::byte> target) {
  SequenceContext& context = parts.context;
  const KvShape& shape = context.shape();
  if (context.phase != SequencePhase::idle || position >= context.length ||
      index(id) >= parts.layers.size() || index(head) >= shape.kv_heads ||
      target.size() != shape.row_bytes()) {
    return fail(Errc::invalid_argument, "read_row: layer {}, head {}, position {} of {}, {} bytes",
                index(id), index(head), position, context.length, target.size());
  }
  Layer& layer = *parts.layers[index(id)];
  const std::size_t block = position / context.block_tokens();
  const std::size_t at = layer.rows.row_offset(index(head), position);
  const bool in_middle = position >= context.sinks_at(context.length).end &&
                         position < layer.window_at(context.length).begin;
  if (in_middle || layer.rows.absent(block)) {
    TERRACE_TRY(context.await(WaitReason::rows, layer.tickets().offloaded));
    std::memcpy(target.data(), layer.rows.on_host(block) + at, target.size());
    return {};
  }
  TERRACE_TRY(context.await(WaitReason::compute, layer.tickets().attended));
  TERRACE_ASSIGN(Buffer row,
                 context.backend().allocate({.bytes = target.size(), .tier = Tier::host}));
  const CopyExtent extent{row.data(), layer.rows.on_device(block) + at, target.size()};
  TERRACE_TRY(context.copy_now(context.lanes.offload(), Phase::offload, {&extent, 1}, row));
  std::memcpy(target.data(), row.data(), target.size());
  return {};
}

Status SequenceState::drop_cached(double share, std::uint64_t seed) {
  SequenceContext& context = parts.context;
  if (context.phase != SequencePhase::idle) {
    return fail(Errc::invalid_argument, "drop_cached: the sequence is not idle");
  }
  context.journal.note_loss();
  for (const auto& layer : parts.layers) {
    Rng rng(seed, {layer->number, context.length});
    TERRACE_TRY(context.await(WaitReason::compute, layer->tickets().attended));
    TERRACE_TRY(layer->cache->await_changes());
    layer->cache->drop_some(share, rng);
  }
  return {};
}

StepSelection SequenceState::selection(LayerId id) const noexcept {
  if (index(id) >= parts.layers.size()) return {};
  const SequenceContext& context = parts.context;
  const Layer& layer = *parts.layers[index(id)];
  const AttendedToken& token = layer.token();
  StepSelection result{.sinks = token.sinks,
                       .window = token.window,
                       .scope = context.traits().lists,
                       .stride = context.list_rows()};
  if (token.selected) {
    const SelectionBuffers lists = token.selection.on_host();
    result.ids = {lists.ids, context.lists() * context.list_rows()};
    result.counts = {lists.counts, context.lists()};
  }
  return result;
}

Result<ClusteringReport> SequenceState::clustering() {
  // To wait is to hurry: builds that the rest of a prompt hides would be cut short.
  if (parts.context.phase == SequencePhase::prefill) {
    return fail(Errc::invalid_argument, "clustering: the prompt has not ended");
  }
  TERRACE_TRY(parts.await_indexes());
  return parts.indexes.builder.report();
}

void SequenceState::reset_counters() noexcept {
  parts.context.counters = {};
  parts.context.journal.reset_counters();
}

}  // namespace terrace
