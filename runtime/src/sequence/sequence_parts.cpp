#include "sequence_parts.hpp"

#include <algorithm>
#include <array>

namespace terrace {

Layers SequenceParts::make_layers(SequenceContext& context) {
  Layers layers;
  for (std::size_t i = 0; i < context.shape().layers; ++i) {
    layers.push_back(std::make_unique<Layer>(context, i));
  }
  return layers;
}

SequenceParts::SequenceParts(RuntimeState& runtime, SequenceState& owner, Lanes lanes)
    : context(runtime, owner, std::move(lanes)),
      layers(make_layers(context)),
      rows(context, layers),
      indexes(context, layers),
      cache(context, layers),
      retention(context, layers),
      workspace(context),
      mass(context, layers) {
  for (const auto& layer : layers) {
    layer->cache = make_layer_cache(context, *layer, cache.scratch());
  }
}

std::size_t SequenceParts::query_window_tokens() const noexcept {
  const std::size_t retrieval = context.traits().query_window_tokens;
  return std::max(retrieval, context.retains() ? context.runtime.retention->traits().score_window
                                               : std::size_t{0});
}

bool SequenceParts::needs_pre_rope_keys() const noexcept {
  return context.traits().needs_pre_rope_keys ||
         (context.retains() && context.runtime.retention->traits().needs_pre_rope_keys);
}

bool SequenceParts::come_to_rest(Duration patience) {
  indexes.refresh.cancel();
  const TimePoint begin = context.clock().now();
  const Lanes::Rest rest = context.lanes.settle(context.compute, patience);
  context.count_wait(WaitReason::rest, begin);
  if (rest.compute_ended) context.compute = nullptr;  // nothing of ours is left in it: it may go
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
  context.journal.note_loss();
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
  if (context.options().placement == Placement::resident_first) rows.place_spare(context.length);
  if (context.journal.listens()) {
    for (const auto& layer : layers) {
      context.journal.note_prompt({.layer = layer->id(),
                                   .tokens = {context.length, end},
                                   .window_begin = context.window_at(end).begin,
                                   .placed_begin = layer->window_at(end).begin});
    }
  }
  cache.place_seeds({context.length, end});
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
  context.journal.note_pause();
  context.phase = SequencePhase::paused;
}

void SequenceParts::pause_or_lose() {
  context.journal.note_loss();
  // Memory that a copy without end still writes to must not get another owner.
  if (come_to_rest()) {
    pause();
  } else {
    context.phase = SequencePhase::lost;
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
