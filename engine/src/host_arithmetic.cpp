#include "host_arithmetic.hpp"

#include <type_traits>

#include "row_check.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/engine/matrix.hpp"

namespace terrace::engine {
namespace {

Result<FloatArray> make_rows(const KvShape& shape, std::size_t tokens) {
  TERRACE_ASSIGN(const std::size_t bytes, checked_multiply(tokens, shape.token_bytes()));
  return FloatArray::create(divide_up(bytes, sizeof(float)));
}

std::byte* bytes_of(FloatArray& array) { return reinterpret_cast<std::byte*>(array.data()); }

}  // namespace

HostArithmetic::HostArithmetic(const LlamaModel& model, Queue& compute,
                               const ArithmeticOptions& options)
    : model_(model), compute_(compute), shape_(model.config().kv_shape(options.kv_dtype)) {}

Result<std::unique_ptr<Arithmetic>> HostArithmetic::create(const LlamaModel& model,
                                                           Backend& backend, Queue& compute,
                                                           const ArithmeticOptions& options) {
  TERRACE_TRY(check_room_for_blas(backend.device_threads().concurrency()));
  std::unique_ptr<HostArithmetic> made(new HostArithmetic(model, compute, options));
  const ModelConfig& config = model.config();
  const std::size_t chunk = options.chunk_tokens;
  TERRACE_ASSIGN(made->workspace_, model.make_workspace(chunk, options.rope_length));
  TERRACE_ASSIGN(made->prefill_attention_,
                 PrefillAttention::create(made->shape_, backend.device_threads().concurrency()));
  TERRACE_ASSIGN(made->chunk_query_, FloatArray::create(chunk * config.query_size()));
  TERRACE_ASSIGN(made->chunk_key_, FloatArray::create(chunk * config.kv_size()));
  TERRACE_ASSIGN(made->chunk_value_, FloatArray::create(chunk * config.kv_size()));
  TERRACE_ASSIGN(made->attention_, FloatArray::create(chunk * config.query_size()));
  TERRACE_ASSIGN(made->step_query_, FloatArray::create(config.layers * config.query_size()));
  TERRACE_ASSIGN(made->logits_, FloatArray::create(config.vocabulary));
  TERRACE_ASSIGN(made->step_rows_, make_rows(made->shape_, 1));
  return made;
}

template <typename Work>
Status HostArithmetic::enqueue(Work work) {
  return compute_
      .call(Phase::model,
            [this, work]() -> Result<std::size_t> {
              if constexpr (std::is_void_v<decltype(work(compute_.threads()))>) {
                work(compute_.threads());
              } else {
                TERRACE_TRY(work(compute_.threads()));
              }
              return 0;
            })
      .map([](Ticket) {});
}

KvTensors HostArithmetic::tensors(const FloatArray& rows, std::size_t capacity) const noexcept {
  const auto* const keys = reinterpret_cast<const std::byte*>(rows.data());
  return {.keys = keys,
          .values = keys + shape_.row_bytes() / 2,
          .token_stride = shape_.row_bytes(),
          .head_stride = capacity * shape_.row_bytes()};
}

Status HostArithmetic::pack_rows(std::size_t layer, FloatArray& rows, std::size_t capacity,
                                 RowRange range) noexcept {
  const auto [first, count] = range;
  const std::size_t elements = count * shape_.kv_heads * shape_.head_dim;
  TERRACE_TRY(check_rows(layer, chunk_key_.span().first(elements),
                         chunk_value_.span().first(elements), shape_.dtype));
  const std::size_t dim = shape_.head_dim;
  for (std::size_t token = 0; token < count; ++token) {
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      std::byte* const row =
          bytes_of(rows) + (head * capacity + first + token) * shape_.row_bytes();
      const std::size_t from = (token * shape_.kv_heads + head) * dim;
      for (std::size_t i = 0; i < dim; ++i) {
        store_f32(row, shape_.dtype, i, chunk_key_.data()[from + i]);
        store_f32(row, shape_.dtype, dim + i, chunk_value_.data()[from + i]);
      }
    }
  }
  return {};
}

Status HostArithmetic::begin_prompt(std::span<const TokenId> tokens) {
  TERRACE_ASSIGN(const std::size_t floats,
                 checked_multiply(tokens.size(), model_.config().hidden_size));
  TERRACE_ASSIGN(hidden_, FloatArray::create(floats));
  for (FloatArray& rows : prompt_rows_) {
    TERRACE_ASSIGN(rows, make_rows(shape_, tokens.size()));
  }
  prompt_tokens_ = tokens.size();
  return model_.embed(tokens, hidden_.data());
}

void HostArithmetic::end_prompt() noexcept {
  hidden_ = {};
  for (FloatArray& rows : prompt_rows_) rows = {};
}

Status HostArithmetic::project_prompt(std::size_t layer, RowRange rows) {
  return enqueue([this, layer, rows](Parallel& threads) {
    const QkvTargets targets{
        .query = chunk_query_.data(), .key = chunk_key_.data(), .value = chunk_value_.data()};
    model_.project_qkv(layer, hidden_.data() + rows.first_position * model_.config().hidden_size,
                       rows, targets, workspace_, threads);
    return pack_rows(layer, prompt_rows_[layer % 2], prompt_tokens_, rows);
  });
}

KvTensors HostArithmetic::prompt_rows(std::size_t layer) const noexcept {
  return tensors(prompt_rows_[layer % 2], prompt_tokens_);
}

Result<std::span<const float>> HostArithmetic::read_queries(std::size_t rows) {
  return chunk_query_.span().first(rows * model_.config().query_size());
}

Status HostArithmetic::finish_prompt(std::size_t layer, RowRange rows) {
  return enqueue([this, layer, rows](Parallel& threads) {
    prefill_attention_.run({.query = chunk_query_.data(),
                            .kv = prompt_rows_[layer % 2].data(),
                            .out = attention_.data(),
                            .capacity = prompt_tokens_,
                            .first_position = rows.first_position,
                            .rows = rows.count},
                           threads);
    model_.finish_layer(layer, attention_.data(), rows.count,
                        hidden_.data() + rows.first_position * model_.config().hidden_size,
                        workspace_, threads);
  });
}

Status HostArithmetic::begin_step(TokenId token) {
  if (hidden_.size() != model_.config().hidden_size) {
    TERRACE_ASSIGN(hidden_, FloatArray::create(model_.config().hidden_size));
  }
  return model_.embed({&token, 1}, hidden_.data());
}

Status HostArithmetic::project_step(std::size_t layer, std::size_t position) {
  return enqueue([this, layer, position](Parallel& threads) {
    const QkvTargets targets{.query = step_query_.data() + layer * model_.config().query_size(),
                             .key = chunk_key_.data(),
                             .value = chunk_value_.data()};
    model_.project_qkv(layer, hidden_.data(), {position, 1}, targets, workspace_, threads);
    return pack_rows(layer, step_rows_, 1, {0, 1});
  });
}

const float* HostArithmetic::step_query(std::size_t layer) const noexcept {
  return query(layer).data();
}

KvTensors HostArithmetic::step_rows() const noexcept { return tensors(step_rows_, 1); }

Status HostArithmetic::finish_step(std::size_t layer) {
  return enqueue([this, layer](Parallel& threads) {
    model_.finish_layer(layer, attention_.data(), 1, hidden_.data(), workspace_, threads);
  });
}

Status HostArithmetic::predict(std::size_t row) {
  return enqueue([this, row](Parallel& threads) {
    model_.logits(hidden_.data() + row * model_.config().hidden_size, 1, logits_.data(), workspace_,
                  threads);
  });
}

std::span<const float> HostArithmetic::query(std::size_t layer) const noexcept {
  const std::size_t size = model_.config().query_size();
  return step_query_.span().subspan(layer * size, size);
}

Result<KvTensors> HostArithmetic::read_rows(const KvTensors& rows, std::size_t first,
                                            std::size_t /*count*/) {
  KvTensors from = rows;
  from.keys += first * rows.token_stride;
  from.values += first * rows.token_stride;
  return from;
}

Result<std::unique_ptr<Arithmetic>> make_host_arithmetic(const LlamaModel& model, Backend& backend,
                                                         Queue& compute,
                                                         const ArithmeticOptions& options) {
  return HostArithmetic::create(model, backend, compute, options);
}

}  // namespace terrace::engine
