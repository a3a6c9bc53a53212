#include "terrace/engine/decoder.hpp"

#include <algorithm>

#include "terrace/core/bytes.hpp"

namespace terrace::engine {
namespace {

/// Floats that hold so many bytes.
std::size_t floats_of(std::size_t bytes) { return divide_up(bytes, sizeof(float)); }

}  // namespace

Decoder::Decoder(const LlamaModel& model, Backend& backend, DecoderOptions options)
    : model_(model),
      backend_(backend),
      options_(std::move(options)),
      shape_(model.config().kv_shape(options_.kv_dtype)) {}

Decoder::~Decoder() {
  // Enqueued work points into this object.
  if (compute_ != nullptr) static_cast<void>(compute_->drain(options_.deadline));
}

Result<std::unique_ptr<Decoder>> Decoder::create(const LlamaModel& model, Backend& backend,
                                                 DecoderOptions options) {
  if (!backend.capabilities().moves_bytes) {
    return fail(Errc::unsupported, "backend {} moves no bytes and cannot decode", backend.name());
  }
  if (options.chunk_tokens == 0) {
    return fail(Errc::invalid_argument, "a prefill chunk of 0 tokens");
  }
  std::unique_ptr<Decoder> decoder(new Decoder(model, backend, std::move(options)));
  const ModelConfig& config = model.config();
  const std::size_t chunk = decoder->options_.chunk_tokens;
  TERRACE_ASSIGN(decoder->compute_, backend.make_queue({.name = "compute", .high_priority = true}));
  TERRACE_ASSIGN(decoder->workspace_, model.make_workspace(chunk));
  TERRACE_ASSIGN(decoder->attention_,
                 PrefillAttention::create(decoder->shape_, backend.device_threads().concurrency()));
  TERRACE_ASSIGN(decoder->chunk_query_, FloatArray::create(chunk * config.query_size()));
  TERRACE_ASSIGN(decoder->chunk_key_, FloatArray::create(chunk * config.kv_size()));
  TERRACE_ASSIGN(decoder->chunk_value_, FloatArray::create(chunk * config.kv_size()));
  TERRACE_ASSIGN(decoder->chunk_attention_,
                 Activation::create(backend, chunk * config.query_size()));
  TERRACE_ASSIGN(decoder->step_query_,
                 Activation::create(backend, config.layers * config.query_size()));
  TERRACE_ASSIGN(decoder->logits_, FloatArray::create(config.vocabulary));
  TERRACE_ASSIGN(decoder->step_rows_,
                 Activation::create(backend, floats_of(decoder->shape_.token_bytes())));
  return decoder;
}

std::span<const float> Decoder::logits() const noexcept { return logits_.span(); }

std::span<const float> Decoder::query(std::size_t layer) const noexcept {
  const std::size_t size = model_.config().query_size();
  return step_query_.span().subspan(layer * size, size);
}

KvTensors Decoder::tensors(std::byte* rows, std::size_t capacity) const noexcept {
  return {.keys = rows,
          .values = rows + shape_.row_bytes() / 2,
          .token_stride = shape_.row_bytes(),
          .head_stride = capacity * shape_.row_bytes()};
}

void Decoder::pack_rows(std::byte* rows, std::size_t capacity, RowRange range) const noexcept {
  const std::size_t dim = shape_.head_dim;
  for (std::size_t token = 0; token < range.count; ++token) {
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      std::byte* const row =
          rows + (head * capacity + range.first_position + token) * shape_.row_bytes();
      const std::size_t from = (token * shape_.kv_heads + head) * dim;
      for (std::size_t i = 0; i < dim; ++i) {
        store_f32(row, shape_.dtype, i, chunk_key_.data()[from + i]);
        store_f32(row, shape_.dtype, dim + i, chunk_value_.data()[from + i]);
      }
    }
  }
}

Status Decoder::reserve_prompt(std::size_t tokens) {
  TERRACE_ASSIGN(const std::size_t floats, checked_multiply(tokens, model_.config().hidden_size));
  TERRACE_ASSIGN(hidden_, FloatArray::create(floats));
  TERRACE_ASSIGN(const std::size_t bytes, checked_multiply(tokens, shape_.token_bytes()));
  for (Activation& rows : prompt_rows_) {
    TERRACE_ASSIGN(rows, Activation::create(backend_, floats_of(bytes)));
  }
  return {};
}

Status Decoder::prefill_layer(Sequence& sequence, std::size_t layer, std::size_t tokens) {
  const auto id = static_cast<LayerId>(layer);
  std::byte* const rows = prompt_rows_[layer % 2].bytes();
  TERRACE_TRY(compute_->wait_for(prompt_rows_read_[layer % 2]));
  for (std::size_t first = 0; first < tokens; first += options_.chunk_tokens) {
    const RowRange range{first, std::min(options_.chunk_tokens, tokens - first)};
    const TokenRange positions{first, first + range.count};
    KvTensors kv = tensors(rows, tokens);
    TERRACE_TRY(compute_->call(Phase::model, [=, this]() -> Result<std::size_t> {
      const QkvTargets targets{
          .query = chunk_query_.data(), .key = chunk_key_.data(), .value = chunk_value_.data()};
      model_.project_qkv(layer, hidden_.data() + first * model_.config().hidden_size, range,
                         targets, workspace_, backend_.device_threads());
      pack_rows(rows, tokens, range);
      return 0;
    }));
    kv.keys += first * shape_.row_bytes();
    kv.values += first * shape_.row_bytes();
    if (observer_ != nullptr) {
      TERRACE_TRY(compute_->call(Phase::model, [=, observer = observer_]() -> Result<std::size_t> {
        observer->on_rows(layer, positions, kv);
        return 0;
      }));
    }
    // Whether a policy wants the queries the sequence knows; pointing at them costs nothing.
    const std::span queries(chunk_query_.data(), range.count * model_.config().query_size());
    TERRACE_ASSIGN(
        prompt_rows_read_[layer % 2],
        sequence.append(id, {.tokens = positions, .kv = kv, .hints = {.query_window = queries}},
                        *compute_));
    if (positions.end == tokens) TERRACE_TRY(sequence.finish(id, *compute_));
    TERRACE_TRY(compute_->call(Phase::model, [=, this]() -> Result<std::size_t> {
      attention_.run({.query = chunk_query_.data(),
                      .kv = rows,
                      .out = chunk_attention_.data(),
                      .capacity = tokens,
                      .first_position = first,
                      .rows = range.count},
                     backend_.device_threads());
      model_.finish_layer(layer, chunk_attention_.data(), range.count,
                          hidden_.data() + first * model_.config().hidden_size, workspace_,
                          backend_.device_threads());
      return 0;
    }));
  }
  return {};
}

Status Decoder::prefill(Sequence& sequence, std::span<const TokenId> tokens) {
  if (sequence.length() != 0) {
    return fail(Errc::invalid_argument, "prefill: the sequence already has {} tokens",
                sequence.length());
  }
  TERRACE_TRY(reserve_prompt(tokens.size()));
  TERRACE_TRY(model_.embed(tokens, hidden_.data()));
  TERRACE_TRY(sequence.begin_prefill(tokens.size()));
  const std::size_t layers = model_.config().layers;
  Ticket before;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    TERRACE_TRY(prefill_layer(sequence, layer, tokens.size()));
    TERRACE_ASSIGN(const Ticket done, compute_->record());
    // One layer ahead is enough to keep the queue full, and lets a failure show itself early.
    TERRACE_TRY(wait(before, options_.deadline));
    before = done;
    if (options_.progress) {
      options_.progress(static_cast<double>(layer) / static_cast<double>(layers));
    }
  }
  const std::size_t last = (tokens.size() - 1) * model_.config().hidden_size;
  TERRACE_TRY(enqueue_logits(hidden_.data() + last));
  TERRACE_TRY(compute_->drain(options_.deadline));
  TERRACE_TRY(sequence.end_prefill());
  hidden_ = {};
  for (auto& rows : prompt_rows_) rows = {};
  if (options_.progress) options_.progress(1);
  return {};
}

Status Decoder::enqueue_logits(const float* hidden) {
  return compute_
      ->call(Phase::model,
             [hidden, this]() -> Result<std::size_t> {
               model_.logits(hidden, 1, logits_.data(), workspace_, backend_.device_threads());
               return 0;
             })
      .map([](Ticket) {});
}

Status Decoder::enqueue_step(Sequence& sequence) {
  const RowRange row{sequence.length(), 1};
  const std::size_t query_size = model_.config().query_size();
  for (std::size_t layer = 0; layer < model_.config().layers; ++layer) {
    float* const query = step_query_.data() + layer * query_size;
    const KvTensors kv = tensors(step_rows_.bytes(), 1);
    TERRACE_TRY(compute_->call(Phase::model, [=, this]() -> Result<std::size_t> {
      const QkvTargets targets{
          .query = query, .key = chunk_key_.data(), .value = chunk_value_.data()};
      model_.project_qkv(layer, hidden_.data(), row, targets, workspace_,
                         backend_.device_threads());
      pack_rows(step_rows_.bytes(), 1, {0, 1});
      if (observer_ != nullptr) {
        observer_->on_rows(layer, {row.first_position, row.first_position + 1}, kv);
      }
      return 0;
    }));
    TERRACE_TRY(sequence.attend(static_cast<LayerId>(layer), {.query = query, .kv = kv},
                                chunk_attention_.data(), *compute_));
    TERRACE_TRY(compute_->call(Phase::model, [=, this]() -> Result<std::size_t> {
      model_.finish_layer(layer, chunk_attention_.data(), 1, hidden_.data(), workspace_,
                          backend_.device_threads());
      return 0;
    }));
  }
  return enqueue_logits(hidden_.data());
}

Status Decoder::step(Sequence& sequence, TokenId token) {
  if (hidden_.size() != model_.config().hidden_size) {
    TERRACE_ASSIGN(hidden_, FloatArray::create(model_.config().hidden_size));
  }
  TERRACE_TRY(model_.embed({&token, 1}, hidden_.data()));
  TERRACE_TRY(sequence.begin_step());
  Status done = enqueue_step(sequence);
  const Result<Ticket> last = compute_->record();
  if (done) done = sequence.end_step();
  if (done && last) done = wait(*last, options_.deadline);
  if (!done && sequence.phase() == SequencePhase::step) {
    // The first error is the one to report; where giving up fails too, the sequence says so itself.
    static_cast<void>(sequence.abandon_step());
  }
  return done;
}

}  // namespace terrace::engine
