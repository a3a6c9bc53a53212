// The end of a sequence's part in a step: caches, tokens that are accepted or not, the next step.
#include <algorithm>
#include <numeric>

#include "participant.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

Status Participant::keep_up() {
  TERRACE_TRY(note_attention());
  // For a figure alone: a queue that fails here fails again where it matters.
  if (parts_.cache.joined()) {
    if (const Result<Ticket> all = work_.compute->record()) work_.computed = *all;
  }
  for (std::size_t i = 0; i < parts_.layers.size(); ++i) {
    Layer& layer = *parts_.layers[i];
    TERRACE_TRY(work_.await(WaitReason::rows, layer.tickets().offloaded));
    TERRACE_TRY(keep_up(layer));
    TERRACE_TRY(parts_.cache.send_changes(half_ending_at(i + 1)));
  }
  return {};
}

Status Participant::keep_up(Layer& layer) {
  const bool counted = !(exact_ && prompt_);
  if (counted) work_.counters.lists += plan_.lists() * tokens_;
  if (exact_ && counted) {
    // Token t of many attends to all rows up to its own.
    const std::size_t most = layer.token().window.size();
    work_.counters.attended += plan_.lists() * (tokens_ * most - tokens_ * (tokens_ - 1) / 2);
  }
  for (std::size_t number = 0; number < single_tokens(); ++number) {
    layer.go_to_token(number);
    TERRACE_TRY(keep_up_token(layer, number));
  }
  return {};
}

Status Participant::keep_up_token(Layer& layer, std::size_t number) {
  const AttendedToken& token = layer.token();
  work_.counters.attended += plan_.lists() * (token.sinks.size() + token.window.size()) +
                             plan_.group() * layer.retention.entries.size();
  if (!token.selected) return {};
  Status kept;
  if (number + 1 == tokens_) {
    kept = layer.cache->take_step();
  } else {
    layer.cache->count_token();
  }
  // Decisions are reported, also where the copying fails.
  if (work_.journal.listens()) parts_.report.report(layer, progress_.length() + number);
  return kept;
}

Status Participant::conclude(std::size_t accepted, Duration patience) {
  const Ticket attended = parts_.layers.back()->tickets().attended;
  TERRACE_TRY(work_.await(WaitReason::compute, attended, patience));
  count_rests();
  // All done: neither the embedder's queue nor the step's need outlive the step.
  for (const auto& layer : parts_.layers) {
    layer->tickets().attended = layer->tickets().fetched = layer->tickets().offloaded = {};
  }
  work_.lanes.lend_step_queue(nullptr);
  parts_.indexes.room.device().end_step();
  work_.computed = {};
  work_.compute = nullptr;
  const Status kept = accept(accepted, patience);
  // The tokens are there. If the window after them found no room, the sequence is paused.
  const bool is_paused = progress_.phase() == SequencePhase::paused;
  if (!kept && !is_paused) return kept;
  if (parts_.retention.inputs.wants_weights()) {
    TERRACE_TRY(parts_.retention.weights.keep(accepted));
  }
  parts_.mass.end_step();
  ++work_.counters.steps;
  if (exact_) ++(prompt_ ? work_.counters.prompt_steps : work_.counters.exact_steps);
  const KvShape& shape = plan_.shape();
  const std::size_t offloaded =
      plan_.keeps_everything() ? 0 : tokens_ * shape.layers * shape.token_bytes();
  work_.counters.bytes.offload += offloaded;
  if (accepted > 0) progress_.note_accepted(prompt_);
  if (is_paused) return kept;
  progress_.end_step();
  // The step itself is done. A failure here comes again, and is reported, when the next one begins.
  static_cast<void>(prepare_next());
  parts_.rows.relieve_host();
  // Prompts that attend exactly have records of their own.
  if (exact_ && prompt_) {
    work_.journal.pass_over(work_.counters.bytes.index);
  } else {
    work_.journal.note_step_end(offloaded, work_.counters.bytes.index);
  }
  return {};
}

void Participant::count_rests() noexcept {
  if (!plan_.traits().estimates_rest) return;
  for (const auto& layer : parts_.layers) {
    for (const AttendedToken& token : layer->tokens().first(single_tokens())) {
      if (!token.selected) continue;
      const std::uint32_t* const counts = token.selection.on_host().pseudo_counts;
      work_.counters.pseudo_entries +=
          std::accumulate(counts, counts + plan_.lists(), std::uint64_t{0});
    }
  }
}

Status Participant::accept(std::size_t tokens, Duration patience) {
  const std::size_t before = progress_.length();
  if (parts_.indexes.prompt.is_under_way()) {
    if (tokens < tokens_) TERRACE_TRY(give_up_indexing(patience));
    if (tokens == tokens_ && parts_.indexes.prompt.keep()) progress_.note_prompt_indexed();
  }
  progress_.add_tokens(tokens);
  for (const auto& layer : parts_.layers) {
    if (tokens > 0 && !exact_) layer->go_to_token(tokens - 1);
    if (prompt_ && layer->index.hints) {
      add_hints(plan_, *layer->index.hints, layer->index.piece_hints, {tokens, tokens_});
    }
  }
  if (tokens == tokens_) return {};
  Status rejected = is_draft() ? reject_draft(before + tokens_) : Status{};
  if (!rejected) {
    progress_.take_back_tokens(tokens);
    return rejected;
  }
  trim_rows();
  // The window ends before rows that may lie on the host alone.
  return may_store_on_host() ? parts_.load_window() : Status{};
}

void Participant::trim_rows() {
  parts_.rows.trim(divide_up(progress_.length(), plan_.block_tokens()));
}

Status Participant::reject_draft(std::size_t end) {
  if (parts_.indexes.builder.building()) TERRACE_TRY(parts_.await_indexes());
  TERRACE_TRY(parts_.indexes.upkeep.reject_draft());
  if (progress_.window_at(end - 1).begin <= progress_.length()) return {};
  // Rejected rows had left the window: copies of them must not outlive them.
  for (const auto& layer : parts_.layers) {
    TERRACE_TRY(work_.await(WaitReason::refill, layer->tickets().refilled));
    layer->drop_copies_from(progress_.length() / plan_.block_tokens());
  }
  return {};
}

Status Participant::prepare_next() {
  // A prompt that came whole, or in pieces, is indexed at once.
  if (progress_.prompt_waits()) static_cast<void>(end_prompt());
  TERRACE_TRY(decide_if_due());
  // Tokens that are added to an index that is being built would wait for it.
  return may_use_indexes() ? parts_.indexes.prepare() : Status{};
}

Status Participant::decide_if_due() {
  // More of a prompt that was not announced may come.
  const bool prompt_may_go_on = progress_.in_prompt() || (prompt_ && !progress_.prompt_given());
  if (prompt_may_go_on || progress_.prompt_waits()) return {};
  return parts_.retention.start_if_due();
}

Status Participant::prepare_prompt() {
  if (progress_.prompt_waits()) TERRACE_TRY(end_prompt());
  return prepare_next();
}

Status Participant::end_prompt() {
  // Otherwise the next step indexes it, once it can.
  return may_use_indexes() ? index_prompt() : Status{};
}

Status Participant::index_prompt() {
  TERRACE_TRY(parts_.indexes.prompt.index());
  progress_.note_prompt_indexed();
  return {};
}

Status Participant::give_up_indexing(Duration patience) {
  parts_.indexes.builder.cancel();
  if (!parts_.come_to_rest(patience)) {
    return fail(Errc::not_ready, "the building of an index does not end; try again");
  }
  parts_.indexes.prompt.give_up();
  return {};
}

Status Participant::abandon(Duration patience) {
  selected_rows_ = {};
  work_.computed = {};
  // The window of a prompt that was kept in part could not be loaded (SequenceParts::load_window).
  if (progress_.phase() == SequencePhase::paused) return {};
  if (parts_.indexes.prompt.is_under_way()) parts_.indexes.builder.cancel();
  const bool at_rest = progress_.phase() != SequencePhase::lost && parts_.come_to_rest(patience);
  if (at_rest) {
    progress_.end_step();
    work_.lanes.lend_step_queue(nullptr);
    parts_.recover();
    if (parts_.indexes.prompt.is_under_way()) parts_.indexes.prompt.give_up();
    for (const auto& layer : parts_.layers) layer->index.piece_hints.clear();
    // Where it fails, the next step codes again, and reports.
    if (is_draft()) static_cast<void>(parts_.indexes.upkeep.reject_draft());
    trim_rows();
    return {};
  }
  progress_.lose();
  return fail(Errc::not_ready, "a queue did not come to rest; the sequence is lost");
}

}  // namespace terrace
