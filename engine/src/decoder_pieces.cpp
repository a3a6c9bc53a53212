// Prompts that come in pieces: each goes through all layers, as a step of the runtime.
#include <algorithm>

#include "arithmetic.hpp"
#include "terrace/engine/decoder.hpp"

namespace terrace::engine {

Status Decoder::extend(Runtime& runtime, Sequence& sequence, std::span<const TokenId> tokens,
                       std::size_t to_come) {
  if (tokens.empty()) return fail(Errc::invalid_argument, "extend: a prompt of no tokens");
  TERRACE_TRY(model_.check(tokens));
  TERRACE_TRY(come_to_rest());
  const std::size_t length = sequence.length();
  TERRACE_TRY(sequence.begin_prompt(tokens.size() + to_come));
  Status done = run_pieces(runtime, sequence, tokens, length + tokens.size() + to_come);
  if (!done) give_prompt_up(sequence, length);
  // A queue that stands still keeps the memory; the next call gives it back.
  if (done || come_to_rest()) arithmetic_->end_prompt();
  return done;
}

Status Decoder::run_pieces(Runtime& runtime, Sequence& sequence, std::span<const TokenId> tokens,
                           std::size_t prompt_end) {
  for (std::size_t first = 0; first < tokens.size();) {
    const std::size_t count = std::min(options_.chunk_tokens, tokens.size() - first);
    TERRACE_TRY(run_piece(runtime, sequence, tokens.subspan(first, count), prompt_end));
    first += count;
    if (options_.progress) {
      options_.progress(static_cast<double>(first) / static_cast<double>(tokens.size()));
    }
  }
  return {};
}

Status Decoder::run_piece(Runtime& runtime, Sequence& sequence, std::span<const TokenId> tokens,
                          std::size_t prompt_end) {
  const RowRange rows{sequence.length(), tokens.size()};
  TERRACE_TRY(arithmetic_->begin_piece(tokens, rows.first_position));
  if (sequence.needs_pre_rope_keys()) TERRACE_TRY(arithmetic_->keep_pre_rope_keys());
  const StepMember member{&sequence, rows.count};
  TERRACE_ASSIGN(const auto step, runtime.begin_step({&member, 1}, *compute_));
  TERRACE_TRY(step->status(0));
  TERRACE_TRY(enqueue_piece(*step, sequence, rows, prompt_end));
  TERRACE_ASSIGN(const Ticket last, compute_->record());
  TERRACE_TRY(step->end());
  TERRACE_TRY(step->status(0));
  // The next piece works in the same memory.
  TERRACE_TRY(wait(last, options_.deadline));
  const std::size_t end = rows.first_position + rows.count;
  return end == prompt_end ? check_numbers(end - 1) : arithmetic_->check_stored_rows();
}

Status Decoder::enqueue_piece(Step& step, const Sequence& sequence, RowRange rows,
                              std::size_t prompt_end) {
  const bool speculates = sequence.needs_speculated_query();
  const std::size_t layers = model_.config().layers;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    TERRACE_TRY(arithmetic_->project_prompt(layer, rows));
    const KvTensors kv = arithmetic_->prompt_rows(layer);
    TERRACE_TRY(show_rows(layer, kv, {0, rows.count}, rows.first_position));
    TERRACE_ASSIGN(const PromptHints hints, hints_of(sequence, rows, prompt_end));
    StepTensors tensors{.query = arithmetic_->prompt_query(),
                        .kv = kv,
                        .output = arithmetic_->prompt_attention(),
                        .hints = {&hints, 1}};
    if (speculates) {
      tensors.speculated_query =
          layer == 0 ? arithmetic_->prompt_query() : arithmetic_->speculated_query();
      tensors.speculated_query_stride = model_.config().query_size();
    }
    TERRACE_TRY(step.attend(static_cast<LayerId>(layer), tensors));
    TERRACE_TRY(step.status(0));
    if (speculates && layer + 1 < layers) {
      TERRACE_TRY(arithmetic_->speculate_prompt(layer + 1, rows));
    }
    TERRACE_TRY(arithmetic_->finish_prompt(layer, rows));
  }
  // The last token alone says what comes behind the prompt.
  if (rows.first_position + rows.count < prompt_end) return arithmetic_->show_checks();
  return arithmetic_->predict(rows.count - 1);
}

void Decoder::give_prompt_up(Sequence& sequence, std::size_t length) {
  // As give_step_up. Tokens that are taken back must be gone before the rest is indexed.
  if (sequence.phase() != SequencePhase::idle || !come_to_rest()) return;
  if (sequence.length() > length && !sequence.truncate(length)) return;
  static_cast<void>(sequence.begin_prompt(0));
}

}  // namespace terrace::engine
