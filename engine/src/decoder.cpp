#include "terrace/engine/decoder.hpp"

#include <algorithm>
#include <utility>

#include "arithmetic.hpp"
#include "row_check.hpp"
#include "terrace/core/drain_to_end.hpp"

namespace terrace::engine {

Decoder::Decoder(const LlamaModel& model, Runtime& runtime, DecoderOptions options)
    : model_(model), runtime_(runtime), options_(std::move(options)) {}

Decoder::~Decoder() {
  // Enqueued work points into this object, which must not go before it ends.
  if (compute_ != nullptr) drain_to_end(*compute_, options_.deadline);
}

Result<std::unique_ptr<Decoder>> Decoder::create(const LlamaModel& model, Runtime& runtime,
                                                 DecoderOptions options) {
  Backend& backend = runtime.backend();
  if (options.chunk_tokens == 0) {
    return fail(Errc::invalid_argument, "a prefill chunk of 0 tokens");
  }
  const KvShape& shape = runtime.options().shape;
  if (shape != model.config().kv_shape(shape.dtype)) {
    return fail(Errc::invalid_argument, "the runtime is of another shape than the model");
  }
  std::unique_ptr<Decoder> decoder(new Decoder(model, runtime, std::move(options)));
  TERRACE_ASSIGN(decoder->compute_, backend.make_queue({.name = "compute", .high_priority = true}));
  TERRACE_ASSIGN(decoder->arithmetic_,
                 make_arithmetic(model, backend, *decoder->compute_,
                                 {.kv_dtype = shape.dtype,
                                  .chunk_tokens = decoder->options_.chunk_tokens,
                                  .rope_length = decoder->options_.rope_length,
                                  .deadline = decoder->options_.deadline}));
  return decoder;
}

std::span<const float> Decoder::logits() const noexcept { return arithmetic_->logits(); }

std::span<const float> Decoder::query(std::size_t layer) const noexcept {
  return arithmetic_->kept_query(layer);
}

std::span<const float> Decoder::attention(std::size_t layer) const noexcept {
  return arithmetic_->kept_attention(layer);
}

std::string_view Decoder::gemm() const noexcept { return arithmetic_->gemm(); }

Status Decoder::come_to_rest() {
  const Status drained = compute_->drain(options_.deadline);
  return drained ? drained : compute_->clear_error();
}

Status Decoder::step(Sequence& sequence, TokenId token) {
  TERRACE_TRY(model_.check({&token, 1}));
  TERRACE_TRY(come_to_rest());
  const std::size_t length = sequence.length();
  Status done = run(sequence, {.tokens = {&token, 1}, .position = length});
  if (!done) take_back(sequence, length);
  return done;
}

void Decoder::take_back(Sequence& sequence, std::size_t length) {
  // The first error is the one to report; where giving up fails too, the sequence says so itself.
  // A step that had ended when its logits failed is tried again with the same token.
  if (sequence.length() > length && come_to_rest()) static_cast<void>(sequence.truncate(length));
}

Status Decoder::run(Sequence& sequence, const Piece& piece) {
  TERRACE_ASSIGN(const auto step, begin(sequence, piece));
  const Result<Ticket> attended = enqueue(*step, sequence, piece);
  const Result<Ticket> last = compute_->record();
  Status done = attended.map([](Ticket) {});
  // A step's end waits for attention, and of a long prompt not long enough; the end of a step of
  // one token updates caches in that time.
  if (done && !piece.decodes()) done = wait_while_moving(*attended);
  if (done) done = step->end();
  if (done) done = step->status(0);
  // The queue is waited for also where the step is given up.
  const Status ended = last ? wait_while_moving(*last) : Status{};
  if (done) done = ended;
  return done ? check_numbers(piece) : done;
}

Result<std::unique_ptr<Step>> Decoder::begin(Sequence& sequence, const Piece& piece) {
  const StepMember member{&sequence, piece.tokens.size()};
  TERRACE_ASSIGN(auto step, runtime_.begin_step({&member, 1}, *compute_));
  TERRACE_TRY(step->status(0));
  TERRACE_TRY(arithmetic_->begin({.tokens = piece.tokens,
                                  .position = piece.position,
                                  .decodes = piece.decodes(),
                                  .keeps_pre_rope_keys = sequence.needs_pre_rope_keys(),
                                  .speculates = sequence.needs_speculated_query()}));
  return step;
}

Result<Ticket> Decoder::enqueue(Step& step, const Sequence& sequence, const Piece& piece) {
  Ticket attended;
  for (std::size_t layer = 0; layer < model_.config().layers; ++layer) {
    TERRACE_TRY(attend(step, sequence, piece, layer));
    const Ticket before = attended;
    TERRACE_ASSIGN(attended, compute_->record());
    TERRACE_TRY(arithmetic_->finish(layer));
    if (piece.decodes()) continue;
    // Enqueueing one layer ahead keeps the queue full, and still shows a failure early.
    TERRACE_TRY(wait_while_moving(before));
    tell_progress(piece, layer);
  }
  TERRACE_TRY(piece.predicts() ? arithmetic_->predict() : arithmetic_->show_checks());
  return attended;
}

Status Decoder::attend(Step& step, const Sequence& sequence, const Piece& piece,
                       std::size_t layer) {
  TERRACE_TRY(arithmetic_->project(layer));
  TERRACE_TRY(show_rows(piece, layer));
  TERRACE_ASSIGN(const PromptHints hints, hints_of(sequence, piece));
  StepTensors tensors{.query = arithmetic_->query(),
                      .kv = arithmetic_->rows(),
                      .output = arithmetic_->attention(),
                      .hints = {&hints, 1}};
  const bool speculates = sequence.needs_speculated_query();
  if (speculates) {
    tensors.speculated_query = layer == 0 ? arithmetic_->query() : arithmetic_->speculated_query();
    tensors.speculated_query_stride = model_.config().query_size();
  }
  // Attention has read the rows, also where they go to the host, when the next layer is projected.
  TERRACE_TRY(step.attend(static_cast<LayerId>(layer), tensors));
  TERRACE_TRY(step.status(0));
  if (piece.decodes() && observer_ != nullptr) TERRACE_TRY(arithmetic_->keep(layer));
  const bool is_last = layer + 1 == model_.config().layers;
  return speculates && !is_last ? arithmetic_->speculate(layer + 1) : Status{};
}

Result<PromptHints> Decoder::hints_of(const Sequence& sequence, const Piece& piece) {
  PromptHints hints;
  if (sequence.needs_pre_rope_keys()) hints.pre_rope_keys = arithmetic_->read_pre_rope_keys();
  // Only queries of the prompt's last positions are made use of.
  const std::size_t wanted_end = piece.end() + sequence.query_window_tokens();
  if (!piece.decodes() && wanted_end > piece.prompt_end) {
    const std::size_t count = std::min(piece.tokens.size(), wanted_end - piece.prompt_end);
    TERRACE_ASSIGN(hints.query_window, arithmetic_->read_queries(count));
  }
  return hints;
}

Status Decoder::show_rows(const Piece& piece, std::size_t layer) {
  if (observer_ == nullptr) return {};
  TERRACE_ASSIGN(const KvTensors rows, arithmetic_->read_rows());
  const TokenRange positions{piece.position, piece.end()};
  return compute_
      ->call(Phase::model,
             [=, observer = observer_]() -> Result<std::size_t> {
               observer->on_rows(layer, positions, rows);
               return 0;
             })
      .map([](Ticket) {});
}

Status Decoder::check_numbers(const Piece& piece) const {
  TERRACE_TRY(arithmetic_->check_stored_rows());
  return piece.predicts() ? check_logits(logits(), piece.end() - 1) : Status{};
}

}  // namespace terrace::engine
