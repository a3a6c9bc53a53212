#include "terrace/engine/reference_decoder.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <new>

#include "row_check.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::engine {
namespace {

constexpr std::size_t head_dim_max = 1024;  // KvShape::validate refuses more

/// The dot product of a query with a key of `dtype`, in double.
double dot(const float* query, const std::byte* row, Dtype dtype, std::size_t size) {
  double sum = 0;
  for (std::size_t i = 0; i < size; ++i) {
    sum += static_cast<double>(query[i]) * load_f32(row, dtype, i);
  }
  return sum;
}

}  // namespace

Result<ReferenceDecoder> ReferenceDecoder::create(const LlamaModel& model, const Options& options,
                                                  Parallel& parallel) try {
  if (options.capacity == 0 || options.chunk_rows == 0) {
    return fail(Errc::invalid_argument, "a reference decoder needs a capacity and chunk_rows");
  }
  const ModelConfig& config = model.config();
  const KvShape shape = config.kv_shape(options.kv_dtype);
  ReferenceDecoder decoder(model, options, parallel);
  const std::size_t rows = decoder.options_.chunk_rows =
      std::min(options.chunk_rows, options.capacity);
  TERRACE_ASSIGN(decoder.workspace_, model.make_workspace(rows, options.rope_length));
  TERRACE_ASSIGN(decoder.attention_, PrefillAttention::create(shape, parallel.concurrency()));
  TERRACE_ASSIGN(decoder.query_, FloatArray::create(rows * config.query_size()));
  TERRACE_ASSIGN(decoder.key_, FloatArray::create(rows * config.kv_size()));
  TERRACE_ASSIGN(decoder.value_, FloatArray::create(rows * config.kv_size()));
  TERRACE_ASSIGN(decoder.attended_, FloatArray::create(rows * config.query_size()));
  TERRACE_ASSIGN(decoder.hidden_, FloatArray::create(config.hidden_size));
  TERRACE_ASSIGN(const std::size_t bytes,
                 checked_multiply(options.capacity, config.layers * shape.token_bytes()));
  decoder.kv_.resize(bytes);
  return decoder;
} catch (const std::exception&) {  // bad_alloc or length_error
  return fail(Errc::out_of_memory, "no memory for the KV cache of {} tokens", options.capacity);
}

std::byte* ReferenceDecoder::layer_rows(std::size_t layer) noexcept {
  const KvShape shape = model_->config().kv_shape(options_.kv_dtype);
  return kv_.data() + layer * options_.capacity * shape.token_bytes();
}

Status ReferenceDecoder::project(std::size_t layer, const float* hidden, RowRange rows) {
  const ModelConfig& config = model_->config();
  const std::size_t d = config.head_dim;
  model_->project_qkv(layer, hidden, rows,
                      {.query = query_.data(), .key = key_.data(), .value = value_.data()},
                      workspace_, *parallel_);
  const std::size_t elements = rows.count * config.kv_size();
  TERRACE_TRY(check_rows(layer, key_.span().first(elements), value_.span().first(elements),
                         options_.kv_dtype));
  std::byte* kv = layer_rows(layer);
  for (std::size_t r = 0; r < rows.count; ++r) {
    for (std::size_t head = 0; head < config.kv_heads; ++head) {
      const std::size_t row = head * options_.capacity + rows.first_position + r;
      const std::size_t source = (r * config.kv_heads + head) * d;
      for (std::size_t i = 0; i < d; ++i) {
        store_f32(kv, options_.kv_dtype, row * 2 * d + i, key_.data()[source + i]);
        store_f32(kv, options_.kv_dtype, row * 2 * d + d + i, value_.data()[source + i]);
      }
    }
  }
  return {};
}

Result<FloatArray> ReferenceDecoder::prefill(std::span<const TokenId> tokens) {
  if (tokens.empty() || tokens.size() > options_.capacity - position_) {
    return fail(Errc::invalid_argument, "cannot append {} tokens; the capacity is {}, {} are used",
                tokens.size(), options_.capacity, position_);
  }
  const std::size_t width = model_->config().hidden_size;
  TERRACE_ASSIGN(FloatArray hidden, FloatArray::create(tokens.size() * width));
  TERRACE_TRY(model_->embed(tokens, hidden.data()));
  for (std::size_t layer = 0; layer < model_->config().layers; ++layer) {
    for (std::size_t begin = 0; begin < tokens.size(); begin += options_.chunk_rows) {
      const std::size_t rows = std::min(options_.chunk_rows, tokens.size() - begin);
      float* chunk = hidden.data() + begin * width;
      TERRACE_TRY(project(layer, chunk, {position_ + begin, rows}));
      attention_.run({.query = query_.data(),
                      .kv = layer_rows(layer),
                      .out = attended_.data(),
                      .capacity = options_.capacity,
                      .first_position = position_ + begin,
                      .rows = rows},
                     *parallel_);
      model_->finish_layer(layer, attended_.data(), rows, chunk, workspace_, *parallel_);
    }
  }
  position_ += tokens.size();
  return hidden;
}

void ReferenceDecoder::attend_one(std::size_t layer, std::size_t query_head) {
  const KvShape shape = model_->config().kv_shape(options_.kv_dtype);
  const std::size_t d = shape.head_dim;
  const std::byte* rows =
      layer_rows(layer) + query_head / shape.group() * options_.capacity * shape.row_bytes();
  const float* query = query_.data() + query_head * d;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  const auto score = [&](std::size_t i) {
    return scale * dot(query, rows + i * shape.row_bytes(), shape.dtype, d);
  };
  // Scores are computed twice, so that a part of parallel work need not allocate.
  double largest = score(0);
  for (std::size_t i = 1; i <= position_; ++i) largest = std::max(largest, score(i));
  double denominator = 0;
  std::array<double, head_dim_max> sum{};
  for (std::size_t i = 0; i <= position_; ++i) {
    const double weight = std::exp(score(i) - largest);
    denominator += weight;
    const std::byte* value = rows + i * shape.row_bytes() + shape.row_bytes() / 2;
    for (std::size_t j = 0; j < d; ++j) sum[j] += weight * load_f32(value, shape.dtype, j);
  }
  for (std::size_t j = 0; j < d; ++j) {
    attended_.data()[query_head * d + j] = static_cast<float>(sum[j] / denominator);
  }
}

Status ReferenceDecoder::step(TokenId token, std::span<float> logits) {
  TERRACE_ASSERT(logits.size() == model_->config().vocabulary);
  if (position_ == options_.capacity) {
    return fail(Errc::invalid_argument, "cannot append a token; all {} of the capacity are used",
                position_);
  }
  TERRACE_TRY(model_->embed({&token, 1}, hidden_.data()));
  for (std::size_t layer = 0; layer < model_->config().layers; ++layer) {
    TERRACE_TRY(project(layer, hidden_.data(), {position_, 1}));
    parallel_->for_each(model_->config().query_heads,
                        [&](std::size_t head) { attend_one(layer, head); });
    model_->finish_layer(layer, attended_.data(), 1, hidden_.data(), workspace_, *parallel_);
  }
  model_->logits(hidden_.data(), 1, logits.data(), workspace_, *parallel_);
  TERRACE_TRY(check_logits(logits, position_));
  ++position_;
  return {};
}

}  // namespace terrace::engine
