#include "prompt_indexer.hpp"

#include "layer/layer.hpp"

namespace terrace {

namespace {

Status unless_out_of_memory(const Status& done) {
  return !done && done.error().code == Errc::out_of_memory ? Status{} : done;
}

}  // namespace

TokenRange PromptIndexer::tokens_to(std::size_t end) const noexcept {
  return {progress_.sinks_at(end).end, end};
}

bool PromptIndexer::has_index() const noexcept {
  return !plan_.layout.empty() && progress_.list_rows() > 0;
}

Status PromptIndexer::begin(std::size_t end) {
  if (!has_index() || tokens_to(end).empty()) return {};
  if (const Status noted = note_indexes(); !noted) return unless_out_of_memory(noted);
  end_ = end;
  builds_before_ = work_.counters.builds;
  streamed_before_ = room_.streams();
  const Status reserved = memory_.make_room([&] { return room_.reserve(end); });
  if (!reserved) {
    give_room_back();
    return unless_out_of_memory(reserved);
  }
  builder_.start_prompt();
  under_way_ = true;
  return {};
}

Status PromptIndexer::note_indexes() {
  TERRACE_TRY(upkeep_.code_lost_tokens());
  for (const auto& layer : layers_) {
    TERRACE_TRY(work_.await(WaitReason::index, layer->index.coded));
    TERRACE_TRY(work_.await(WaitReason::upload, layer->index.uploaded));
  }
  for (const auto& layer : layers_) TERRACE_TRY(layer->index.keep(work_.backend));
  return {};
}

Status PromptIndexer::start(Layer& layer, Queue& compute) {
  if (layer.number > 0) {
    TERRACE_TRY(builder_.note_compute(*layers_[layer.number - 1], compute));
  }
  const Status started = upkeep_.add_prompt(layer, tokens_to(end_), {progress_.length(), end_});
  // The layer is indexed after the step, when the step's own memory is free again.
  return unless_out_of_memory(started);
}

Status PromptIndexer::take_hints(Layer& layer, Queue& compute) const {
  if (!asks_for_hints(plan_.traits()) || !layer.index.hints) return {};
  const auto add = [&plan = plan_, &index = layer.index]() -> Result<std::size_t> {
    index.build.hints.query_window.clear();
    // The hints that are added stay where they are, too: the step may be given up.
    append_hints(plan, index.build.hints, *index.hints);
    append_hints(plan, index.build.hints, index.piece_hints);
    return 0;
  };
  return compute.call(Phase::update, add).map([](Ticket) {});
}

bool PromptIndexer::keep() {
  under_way_ = false;
  bool all = true;
  for (const auto& layer : layers_) {
    LayerIndex& index = layer->index;
    const bool started = plan_.is_dense(layer->number) || index.image.coverage.tokens().end >= end_;
    all = all && started;
    if (started) {
      index.hints.reset();
      index.piece_hints.clear();
    } else {
      index.put_back_hints();
    }
    index.forget_kept();
  }
  return all;
}

void PromptIndexer::give_up() {
  under_way_ = false;
  work_.counters.builds = builds_before_;
  builder_.forget();
  for (const auto& layer : layers_) {
    layer->index.put_back();
    room_.device().mark_stale(*layer);
  }
  give_room_back();
}

void PromptIndexer::give_room_back() {
  room_.trim();
  if (streamed_before_ || !room_.streams()) return;
  room_.start_over();
  // The next step brings them back to the device, as far as there is room.
  for (const auto& layer : layers_) room_.device().mark_stale(*layer);
}

Status PromptIndexer::index() {
  const TokenRange tokens = tokens_to(progress_.length());
  if (!has_index() || tokens.empty()) return {};
  for (const auto& layer : layers_) TERRACE_TRY(index(*layer, tokens));
  return {};
}

Status PromptIndexer::index(Layer& layer, TokenRange tokens) {
  LayerIndex& index = layer.index;
  if (index.hints) {
    // No build is under way that could read them.
    const AcceptedTokens all{progress_.prompt().size(), progress_.prompt().size()};
    index.build.hints.query_window.clear();
    add_hints(plan_, index.build.hints, *index.hints, all);
    index.hints.reset();
  }
  if (index.image.coverage.tokens().end >= tokens.end) return {};
  return upkeep_.add_prompt(layer, tokens, /*hidden_by=*/{});
}

}  // namespace terrace
