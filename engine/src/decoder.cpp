#include "terrace/engine/decoder.hpp"

#include <algorithm>
#include <utility>

#include "arithmetic.hpp"
#include "row_check.hpp"
#include "terrace/core/drain_to_end.hpp"

namespace terrace::engine {

Decoder::Decoder(const LlamaModel& model, DecoderOptions options)
    : model_(model), options_(std::move(options)) {}

Decoder::~Decoder() {
  // Enqueued work points into this object, which must not go before it ends.
  if (compute_ != nullptr) drain_to_end(*compute_, options_.deadline);
}

Result<std::unique_ptr<Decoder>> Decoder::create(const LlamaModel& model, Backend& backend,
                                                 DecoderOptions options) {
  if (!backend.capabilities().moves_bytes) {
    return fail(Errc::unsupported, "backend {} moves no bytes and cannot decode", backend.name());
  }
  if (options.chunk_tokens == 0) {
    return fail(Errc::invalid_argument, "a prefill chunk of 0 tokens");
  }
  std::unique_ptr<Decoder> decoder(new Decoder(model, std::move(options)));
  TERRACE_ASSIGN(decoder->compute_, backend.make_queue({.name = "compute", .high_priority = true}));
  TERRACE_ASSIGN(decoder->arithmetic_,
                 make_arithmetic(model, backend, *decoder->compute_,
                                 {.kv_dtype = decoder->options_.kv_dtype,
                                  .chunk_tokens = decoder->options_.chunk_tokens,
                                  .rope_length = decoder->options_.rope_length,
                                  .deadline = decoder->options_.deadline}));
  return decoder;
}

std::span<const float> Decoder::logits() const noexcept { return arithmetic_->logits(); }

std::span<const float> Decoder::attention(std::size_t layer) const noexcept {
  return arithmetic_->kept_attention(layer);
}

std::span<const float> Decoder::query(std::size_t layer) const noexcept {
  return arithmetic_->query(layer);
}

std::string_view Decoder::gemm() const noexcept { return arithmetic_->gemm(); }

Status Decoder::show_rows(std::size_t layer, const KvTensors& rows, RowRange range,
                          std::size_t position) {
  if (observer_ == nullptr) return {};
  TERRACE_ASSIGN(const KvTensors readable,
                 arithmetic_->read_rows(rows, range.first_position, range.count));
  const TokenRange positions{position, position + range.count};
  return compute_
      ->call(Phase::model,
             [=, observer = observer_]() -> Result<std::size_t> {
               observer->on_rows(layer, positions, readable);
               return 0;
             })
      .map([](Ticket) {});
}

Result<PromptHints> Decoder::hints_of(const Sequence& sequence, RowRange rows,
                                      std::size_t prompt_end) {
  PromptHints hints;
  // Only the last of them are made use of.
  if (rows.first_position + rows.count + sequence.query_window_tokens() > prompt_end) {
    TERRACE_ASSIGN(hints.query_window, arithmetic_->read_queries(rows.count));
  }
  if (sequence.needs_pre_rope_keys()) {
    TERRACE_ASSIGN(hints.pre_rope_keys, arithmetic_->read_pre_rope_keys(rows.count));
  }
  return hints;
}

Status Decoder::append_chunk(Sequence& sequence, std::size_t layer, RowRange rows,
                             std::size_t tokens) {
  const std::size_t end = rows.first_position + rows.count;
  PromptPiece piece{.tokens = {rows.first_position, end}, .kv = arithmetic_->prompt_rows(layer)};
  piece.kv.keys += rows.first_position * piece.kv.token_stride;
  piece.kv.values += rows.first_position * piece.kv.token_stride;
  TERRACE_ASSIGN(piece.hints, hints_of(sequence, rows, tokens));
  TERRACE_ASSIGN(prompt_rows_read_[layer % 2],
                 sequence.append(static_cast<LayerId>(layer), piece, *compute_));
  return {};
}

Status Decoder::prefill_layer(Sequence& sequence, std::size_t layer, std::size_t tokens) {
  chunks_done_[layer % 2].clear();
  TERRACE_TRY(compute_->wait_for(prompt_rows_read_[layer % 2]));
  for (std::size_t first = 0; first < tokens; first += options_.chunk_tokens) {
    const RowRange rows{first, std::min(options_.chunk_tokens, tokens - first)};
    TERRACE_TRY(arithmetic_->project_prompt(layer, rows));
    TERRACE_TRY(show_rows(layer, arithmetic_->prompt_rows(layer), rows, first));
    TERRACE_TRY(append_chunk(sequence, layer, rows, tokens));
    if (first + rows.count == tokens) {
      TERRACE_TRY(sequence.finish(static_cast<LayerId>(layer), *compute_));
    }
    TERRACE_TRY(arithmetic_->attend_prompt(layer, rows));
    TERRACE_TRY(arithmetic_->finish_prompt(layer, rows));
    TERRACE_ASSIGN(const Ticket done, compute_->record());
    chunks_done_[layer % 2].push_back(done);
  }
  return {};
}

Status Decoder::wait_for_layer(std::size_t layer) {
  // Chunk by chunk: a long prompt takes long, and only one that stands still is late.
  for (const Ticket& done : chunks_done_[layer % 2]) TERRACE_TRY(wait(done, options_.deadline));
  return {};
}

Status Decoder::come_to_rest() {
  const Status drained = compute_->drain(options_.deadline);
  return drained ? drained : compute_->clear_error();
}

void Decoder::let_go_of_prompt() {
  // Now, for the sequence may be gone later, and its queues with it.
  const Deadline deadline(options_.deadline);
  for (Ticket& read : prompt_rows_read_) {
    static_cast<void>(wait(std::exchange(read, {}), deadline.left()));
  }
}

Status Decoder::prefill(Sequence& sequence, std::span<const TokenId> tokens) {
  if (sequence.length() != 0) {
    return fail(Errc::invalid_argument, "prefill: the sequence already has {} tokens",
                sequence.length());
  }
  TERRACE_TRY(model_.check(tokens));
  TERRACE_TRY(come_to_rest());
  Status done = run_prompt(sequence, tokens);
  let_go_of_prompt();
  return done;
}

Status Decoder::run_prompt(Sequence& sequence, std::span<const TokenId> tokens) {
  TERRACE_TRY(arithmetic_->begin_prompt(tokens));
  if (sequence.needs_pre_rope_keys()) TERRACE_TRY(arithmetic_->keep_pre_rope_keys());
  TERRACE_TRY(sequence.begin_prefill(tokens.size()));
  const std::size_t layers = model_.config().layers;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    TERRACE_TRY(prefill_layer(sequence, layer, tokens.size()));
    // One layer ahead is enough to keep the queue full, and lets a failure show itself early.
    if (layer > 0) TERRACE_TRY(wait_for_layer(layer - 1));
    if (options_.progress) {
      options_.progress(static_cast<double>(layer) / static_cast<double>(layers));
    }
  }
  TERRACE_TRY(arithmetic_->predict(tokens.size() - 1));
  TERRACE_TRY(wait_for_layer(layers - 1));
  TERRACE_TRY(compute_->drain(options_.deadline));
  TERRACE_TRY(check_numbers(tokens.size() - 1));
  TERRACE_TRY(sequence.end_prefill());
  arithmetic_->end_prompt();
  if (options_.progress) options_.progress(1);
  return {};
}

Status Decoder::enqueue_step(Sequence& sequence, TokenId token) {
  TERRACE_TRY(arithmetic_->begin_step(token));
  const bool pre_rope_keys = sequence.needs_pre_rope_keys();
  if (pre_rope_keys) TERRACE_TRY(arithmetic_->keep_pre_rope_keys());
  const std::size_t position = sequence.length();
  for (std::size_t layer = 0; layer < model_.config().layers; ++layer) {
    TERRACE_TRY(arithmetic_->project_step(layer, position));
    TERRACE_TRY(show_rows(layer, arithmetic_->step_rows(), {0, 1}, position));
    StepInput input{.query = arithmetic_->step_query(layer), .kv = arithmetic_->step_rows()};
    if (pre_rope_keys) {
      TERRACE_ASSIGN(input.hints.pre_rope_keys, arithmetic_->read_pre_rope_keys(1));
    }
    if (sequence.needs_speculated_query()) {
      input.speculated_query = layer == 0 ? input.query : arithmetic_->speculated_query();
    }
    TERRACE_TRY(
        sequence.attend(static_cast<LayerId>(layer), input, arithmetic_->attention(), *compute_));
    if (observer_ != nullptr) TERRACE_TRY(arithmetic_->keep_attention(layer));
    if (sequence.needs_speculated_query() && layer + 1 < model_.config().layers) {
      TERRACE_TRY(arithmetic_->speculate_step(layer + 1, position));
    }
    TERRACE_TRY(arithmetic_->finish_step(layer));
  }
  return arithmetic_->predict(0);
}

Status Decoder::step(Sequence& sequence, TokenId token) {
  TERRACE_TRY(model_.check({&token, 1}));
  TERRACE_TRY(come_to_rest());
  const std::size_t length = sequence.length();
  TERRACE_TRY(sequence.begin_step());
  Status done = enqueue_step(sequence, token);
  const Result<Ticket> last = compute_->record();
  if (done) done = sequence.end_step();
  if (done && last) done = wait(*last, options_.deadline);
  if (done) done = check_numbers(length);
  if (!done) give_step_up(sequence, length);
  return done;
}

Status Decoder::check_numbers(std::size_t position) const {
  TERRACE_TRY(arithmetic_->check_stored_rows());
  return check_logits(logits(), position);
}

void Decoder::give_step_up(Sequence& sequence, std::size_t length) {
  // The first error is the one to report; where giving up fails too, the sequence says so itself.
  if (sequence.phase() == SequencePhase::step) {
    static_cast<void>(sequence.abandon_step());
  } else if (sequence.length() > length && come_to_rest()) {
    // The step had ended when the logits failed: whoever tries again appends the token again.
    static_cast<void>(sequence.truncate(length));
  }
}

}  // namespace terrace::engine
