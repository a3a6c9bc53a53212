#include "sequence_progress.hpp"

#include <algorithm>
#include <cassert>
#include <string_view>

namespace terrace {
namespace {

/// The need of a call that is for a phase.
std::string_view need_of(SequencePhase phase) noexcept {
  switch (phase) {
    case SequencePhase::step:
      return "no step is under way";
    case SequencePhase::paused:
      return "the sequence is not paused";
    case SequencePhase::idle:
    case SequencePhase::lost:
      break;
  }
  return "the sequence must be idle";
}

std::string_view name_of(SequencePhase phase) noexcept {
  switch (phase) {
    case SequencePhase::idle:
      return "it is idle";
    case SequencePhase::step:
      return "a step is under way";
    case SequencePhase::paused:
      return "it is paused: resume() it";
    case SequencePhase::lost:
      break;
  }
  return "it is lost: close it";
}

}  // namespace

TokenRange SequenceProgress::sinks_at(std::size_t position) const noexcept {
  return {0, std::min(split().sinks, position)};
}

TokenRange SequenceProgress::window_at(std::size_t position) const noexcept {
  // A window never takes a token back that had left it: it grows by one token with each, at most.
  const std::size_t window = split_at(position).window;
  const std::size_t recent = position > window ? position - window : 0;
  return {std::max(sinks_at(position).end, recent), position + 1};
}

std::size_t SequenceProgress::undecided_from(std::size_t position) const noexcept {
  if (retained_end() > 0) return retained_end();
  // All tokens are attended to until retention has to decide.
  const std::size_t all = split().sinks + split().kept + 2 * split().window;
  if (position < all) return sinks_at(position).end;
  // Tokens after those of a first flush stay in the window, however long the flush takes.
  return flush_end() > 0 ? flush_end() : window_at(position).begin;
}

Status SequenceProgress::require(SequencePhase wanted) const {
  if (phase() == wanted) return {};
  return fail(Errc::invalid_argument, "{}; {}", need_of(wanted), name_of(phase()));
}

Status SequenceProgress::check_length(std::size_t tokens) const {
  if (tokens <= max_positions - length()) return {};
  return fail(Errc::invalid_argument, "{} tokens and {} more are more than {}", length(), tokens,
              max_positions);
}

void SequenceProgress::resolve_budget(std::size_t context) {
  if (now_.budget.resolved) return;
  const policies::BudgetTerms terms = plan_.budget_terms(context);
  const policies::BudgetSplit split = policies::split_budget(terms, plan_.traits());
  now_.budget = {.resolved = true,
                 .tokens = terms.budget_tokens,
                 .context = context,
                 .split = split,
                 .list_rows = plan_.room_for(split.selected)};
}

void SequenceProgress::announce_prompt(std::size_t tokens) {
  assert(phase() == SequencePhase::idle);
  if (!prompt_comes()) {
    now_.prompt.begin = length();
    now_.prompt_selects = false;
  }
  now_.prompt.end = length() + tokens;
  now_.prompt_comes = now_.prompt_given = true;
  if (!has_decoded() && retained_end() == 0) forget_budget();
  resolve_budget(prompt().end);
}

bool SequenceProgress::cut_prompt() {
  now_.prompt_given = prompt_given() || length() > 0;  // also an unannounced one
  if (!prompt_comes()) return false;
  now_.prompt.end = length();
  now_.prompt_comes = !prompt().empty();
  return prompt_comes();
}

void SequenceProgress::change_phase([[maybe_unused]] SequencePhase from,
                                    SequencePhase to) noexcept {
  assert(phase() == from);
  assert(prompt().begin <= prompt().end);
  assert(std::max(retained_end(), flush_end()) <= length());
  assert(length() <= max_positions);
  now_.phase = to;
}

void SequenceProgress::begin_step() noexcept {
  assert(budget().resolved);
  change_phase(SequencePhase::idle, SequencePhase::step);
}

void SequenceProgress::add_tokens(std::size_t tokens) noexcept {
  assert(phase() == SequencePhase::step);
  now_.length += tokens;
}

void SequenceProgress::take_back_tokens(std::size_t tokens) noexcept {
  assert(tokens <= length());
  now_.length -= tokens;
}

void SequenceProgress::note_accepted(bool of_prompt) noexcept {
  now_.has_decoded = has_decoded() || !of_prompt;
  now_.is_behind_prompt = of_prompt;
}

void SequenceProgress::end_step() noexcept {
  change_phase(SequencePhase::step, SequencePhase::idle);
}

void SequenceProgress::cut(std::size_t length) noexcept {
  assert(phase() == SequencePhase::idle && length <= now_.length);
  now_.length = length;
}

void SequenceProgress::pause() noexcept {
  assert(phase() != SequencePhase::lost);
  now_.phase = SequencePhase::paused;
}

void SequenceProgress::resume() noexcept {
  change_phase(SequencePhase::paused, SequencePhase::idle);
}

void SequenceProgress::begin_with_prefix(std::size_t tokens, std::size_t indexed) {
  assert(length() == 0 && phase() == SequencePhase::idle && indexed <= tokens);
  now_.length = tokens;
  now_.prompt = {indexed, tokens};
  now_.prompt_given = true;
  now_.prompt_comes = indexed < tokens;
  now_.phase = SequencePhase::paused;
  resolve_budget(tokens);
}

void SequenceProgress::begin_as(const SequenceProgress& other) noexcept {
  assert(length() == 0 && other.flush_end() == 0);
  now_ = other.now_;
  now_.phase = SequencePhase::paused;
}

void SequenceProgress::end_flush(bool decided) noexcept {
  if (decided) now_.retained_end = now_.flush_end;
  now_.flush_end = 0;
}

void SequenceProgress::forget_decisions() noexcept {
  now_.retained_end = 0;
  // Queries to choose by come with the next tokens.
  now_.flushes_from = length() == 0 ? 0 : length() + split().window;
}

}  // namespace terrace
