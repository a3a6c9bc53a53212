#include "sequence_parts.hpp"

#include <algorithm>
#include <array>

#include "cache/make_layer_cache.hpp"

namespace terrace {
namespace {

Layers make_layers(const SequenceServices& services) {
  Layers layers;
  for (std::size_t i = 0; i < services.plan.shape().layers; ++i) {
    layers.push_back(std::make_unique<Layer>(services, i));
  }
  return layers;
}

}  // namespace

SequenceParts::SequenceParts(RuntimeState& runtime, MemoryHolder& holder, Lanes lanes)
    : plan(runtime.plan),
      progress(plan),
      work(*runtime.backend, std::move(lanes),
           {.id = runtime.next_sequence(),
            .deadline = plan.deadline(),
            .observer = plan.options.observer}),
      memory(runtime.pools, *runtime.host, runtime.reclaimer, holder),
      layers(make_layers(services(runtime))),
      rows(services(runtime), layers),
      indexes(services(runtime), layers),
      cache(services(runtime), layers),
      retention(services(runtime), layers),
      workspace(services(runtime)),
      report(services(runtime)),
      mass(services(runtime), layers) {
  for (const auto& layer : layers) {
    layer->cache = make_layer_cache(services(runtime), *layer, cache.scratch());
  }
}

SequenceServices SequenceParts::services(RuntimeState& runtime) noexcept {
  return {.plan = plan,
          .progress = progress,
          .work = work,
          .memory = memory,
          .threads = runtime.cluster_threads,
          .iteration_limits = runtime.iteration_limits,
          .sharers = runtime.cache_sharers};
}

std::size_t SequenceParts::query_window_tokens() const noexcept {
  const std::size_t retrieval = plan.traits().query_window_tokens;
  return std::max(retrieval,
                  plan.retains() ? plan.retention->traits().score_window : std::size_t{0});
}

bool SequenceParts::needs_pre_rope_keys() const noexcept {
  return plan.traits().needs_pre_rope_keys ||
         (plan.retains() && plan.retention->traits().needs_pre_rope_keys);
}

bool SequenceParts::come_to_rest(Duration patience) {
  indexes.refresh.cancel();
  const TimePoint begin = work.clock().now();
  const Lanes::Rest rest = work.lanes.settle(work.compute, patience);
  work.count_wait(WaitReason::rest, begin);
  if (rest.compute_ended) work.compute = nullptr;  // nothing of ours is left in it: it may go
  if (rest.failed) indexes.upkeep.forget_lost_coding();
  // The tickets say which work is still under way.
  if (!rest.at_rest) return false;
  indexes.refresh.stop();
  for (const auto& layer : layers) {
    layer->tickets() = {};
    layer->index.uploaded = {};
    layer->retention.uploaded = {};
    // A failed queue may have skipped the copying of what was set.
    layer->rows.touch_table();
  }
  indexes.room.device().come_to_rest();
  indexes.room.ready = false;
  retention.weights.forget_tickets();
  if (rest.failed) retention.mark_stale();
  return true;
}

Status SequenceParts::recovering(const Status& done) {
  if (done) return done;
  // Work that failed between calls must not make them fail for good. Refused memory alone made no
  // work fail, but work that found no memory did fail.
  const Errc code = done.error().code;
  const bool failed = code == Errc::out_of_memory ? has_failed_work() : code != Errc::not_ready;
  if (failed && come_to_rest()) recover();
  return done;
}

bool SequenceParts::has_failed_work() const {
  return std::ranges::any_of(layers, [](const auto& layer) {
    return std::ranges::any_of(std::array{layer->tickets().offloaded, layer->tickets().refilled,
                                          layer->index.coded, layer->index.uploaded},
                               [](const Ticket& ticket) { return !poll(ticket).has_value(); });
  });
}

void SequenceParts::recover() {
  work.journal.note_loss();
  indexes.room.device().forget_staged();
  retention.mark_stale();
  for (const auto& layer : layers) {
    layer->drop_copies_from(0);
    layer->forget_tokens();
    indexes.room.device().mark_stale(*layer);
  }
  indexes.room.ready = false;
}

Status SequenceParts::await_indexes() {
  TERRACE_TRY(indexes.builder.await([this] { come_to_rest(); }));
  return retention.await();
}

void SequenceParts::place_prompt(std::size_t end) {
  if (plan.options.placement == Placement::resident_first) rows.place_spare(progress.length());
  if (work.journal.listens()) {
    for (const auto& layer : layers) {
      work.journal.note_prompt({.layer = layer->id(),
                                .tokens = {progress.length(), end},
                                .window_begin = progress.window_at(end).begin,
                                .placed_begin = layer->window_at(end).begin});
    }
  }
  cache.place_seeds({progress.length(), end});
}

Status SequenceParts::load_window() {
  const Status loaded = rows.load_needed();
  if (loaded) return {};
  pause_or_lose();
  return tl::unexpected(loaded.error().while_doing(
      "the window could not be loaded; if the sequence is paused, resume() tries again"));
}

void SequenceParts::pause() {
  give_up_device_memory();
  work.journal.note_pause();
  progress.pause();
}

void SequenceParts::pause_or_lose() {
  work.journal.note_loss();
  // Memory that a copy without end still writes to must not get another owner.
  if (come_to_rest()) {
    pause();
  } else {
    progress.lose();
  }
}

void SequenceParts::give_up_device_memory() {
  cache.leave();
  retention.weights.give_up_memory();
  for (const auto& layer : layers) layer->give_up_device_memory();
  indexes.room.device().reset();
  workspace.reset();
}

}  // namespace terrace
