#include "terrace/engine/reference_decoder.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <new>

#include "row_check.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/engine/vector_math.hpp"

namespace terrace::engine {
namespace {

constexpr std::size_t head_dim_max = 1024;  // KvShape::validate refuses more

double dot(const float* a, const float* b, std::size_t size) {
  double sum = 0;
  for (std::size_t i = 0; i < size; ++i) sum += static_cast<double>(a[i]) * b[i];
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
      attend(layer, {position_ + begin, rows});
      model_->finish_layer(layer, attended_.data(), rows, chunk, workspace_, *parallel_);
    }
  }
  position_ += tokens.size();
  return hidden;
}

void ReferenceDecoder::attend(std::size_t layer, RowRange rows) {
  const std::size_t heads = model_->config().query_heads;
  parallel_->for_each(rows.count * heads, [&](std::size_t part) {
    const std::size_t row = part / heads;
    attend_one(layer, row, rows.first_position + row, part % heads);
  });
}

void ReferenceDecoder::attend_one(std::size_t layer, std::size_t row, std::size_t position,
                                  std::size_t query_head) {
  const KvShape shape = model_->config().kv_shape(options_.kv_dtype);
  const std::size_t d = shape.head_dim;
  const std::byte* stored =
      layer_rows(layer) + query_head / shape.group() * options_.capacity * shape.row_bytes();
  const std::size_t at = (row * shape.query_heads + query_head) * d;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  std::array<float, 2 * head_dim_max> key_and_value;
  std::array<double, head_dim_max> sum{};
  double largest = -std::numeric_limits<double>::infinity();
  double denominator = 0;
  for (std::size_t i = 0; i <= position; ++i, stored += shape.row_bytes()) {
    convert_to_f32(stored, shape.dtype, 2 * d, key_and_value.data());
    const double score = scale * dot(query_.data() + at, key_and_value.data(), d);
    if (score > largest) {
      // Sums so far are rescaled, because a part of parallel work cannot keep scores.
      const double shrink = std::exp(largest - score);
      for (std::size_t j = 0; j < d; ++j) sum[j] *= shrink;
      denominator *= shrink;
      largest = score;
    }
    const double weight = std::exp(score - largest);
    denominator += weight;
    for (std::size_t j = 0; j < d; ++j) sum[j] += weight * key_and_value[d + j];
  }
  for (std::size_t j = 0; j < d; ++j) {
    attended_.data()[at + j] = static_cast<float>(sum[j] / denominator);
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
    attend(layer, {position_, 1});
    model_->finish_layer(layer, attended_.data(), 1, hidden_.data(), workspace_, *parallel_);
  }
  model_->logits(hidden_.data(), 1, logits.data(), workspace_, *parallel_);
  TERRACE_TRY(check_logits(logits, position_));
  ++position_;
  return {};
}

}  // namespace terrace::engine
