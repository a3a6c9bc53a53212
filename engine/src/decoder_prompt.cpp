// Prompts: each piece goes through all layers, as a step of the runtime.
#include <algorithm>

#include "arithmetic.hpp"
#include "terrace/engine/decoder.hpp"

namespace terrace::engine {
namespace {

/// Still smaller pieces need hardly less memory.
constexpr std::size_t least_piece_tokens = 64;

}  // namespace

Status Decoder::prefill(Sequence& sequence, std::span<const TokenId> tokens,
                        const PromptOptions& options) {
  if (tokens.empty()) return fail(Errc::invalid_argument, "prefill: a prompt of no tokens");
  TERRACE_TRY(model_.check(tokens));
  TERRACE_TRY(come_to_rest());
  const std::size_t length = sequence.length();
  TERRACE_TRY(sequence.begin_prompt(tokens.size() + options.to_come));
  Status done = run_prompt(sequence, tokens, options);
  if (!done) give_prompt_up(sequence, length);
  // A queue that makes no progress keeps the memory; the next call gives it back.
  if (done || come_to_rest()) arithmetic_->release();
  if (done && options_.progress) options_.progress(1);
  return done;
}

Status Decoder::run_prompt(Sequence& sequence, std::span<const TokenId> tokens,
                           const PromptOptions& options) {
  const std::size_t prompt_end = sequence.length() + tokens.size() + options.to_come;
  const auto share_of = [&](std::size_t count) {
    return static_cast<double>(count) / static_cast<double>(tokens.size());
  };
  std::size_t most = options.piece_tokens == 0 ? tokens.size() : options.piece_tokens;
  for (std::size_t first = 0; first < tokens.size();) {
    const std::size_t count = std::min(most, tokens.size() - first);
    const Status done = run(sequence, {.tokens = tokens.subspan(first, count),
                                       .position = sequence.length(),
                                       .prompt_end = prompt_end,
                                       .share_before = share_of(first),
                                       .share = share_of(count)});
    if (done) {
      first += count;
      continue;
    }
    const bool may_fit = done.error().code == Errc::out_of_memory && count > least_piece_tokens &&
                         sequence.phase() == SequencePhase::idle && come_to_rest();
    if (!may_fit) return done;
    // Smaller pieces do not need the buffers of this one.
    arithmetic_->release();
    runtime_.release_step_memory();
    most = count / 2;
  }
  return {};
}

Status Decoder::wait_while_moving(Ticket ticket) {
  for (;;) {
    const std::uint64_t pieces = compute_->counters().pieces;
    Status done = wait(ticket, options_.deadline);
    const bool late = !done && done.error().code == Errc::not_ready;
    if (!late || compute_->counters().pieces == pieces) return done;
  }
}

void Decoder::tell_progress(const Piece& piece, std::size_t layers) const {
  if (!options_.progress) return;
  const double share = static_cast<double>(layers) / static_cast<double>(model_.config().layers);
  options_.progress(piece.share_before + share * piece.share);
}

void Decoder::give_prompt_up(Sequence& sequence, std::size_t length) {
  if (sequence.phase() != SequencePhase::idle || !come_to_rest()) return;
  take_back(sequence, length);
  // Tokens that are taken back must be gone before the rest is indexed.
  if (sequence.length() == length) static_cast<void>(sequence.begin_prompt(0));
}

}  // namespace terrace::engine
