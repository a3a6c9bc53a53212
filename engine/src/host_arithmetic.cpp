#include "host_arithmetic.hpp"

#include <type_traits>

#include "row_check.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/engine/matrix.hpp"

namespace terrace::engine {
namespace {

/// Makes an array of another size anew.
Status resize(FloatArray& array, std::size_t floats) {
  if (array.size() == floats) return {};
  array = {};
  TERRACE_ASSIGN(array, FloatArray::create(floats));
  return {};
}

Status resize_rows(FloatArray& rows, const KvShape& shape, std::size_t tokens) {
  TERRACE_ASSIGN(const std::size_t bytes, checked_multiply(tokens, shape.token_bytes()));
  return resize(rows, divide_up(bytes, sizeof(float)));
}

std::byte* bytes_of(FloatArray& array) { return reinterpret_cast<std::byte*>(array.data()); }

}  // namespace

HostArithmetic::HostArithmetic(const LlamaModel& model, Queue& compute,
                               const ArithmeticOptions& options)
    : model_(model),
      compute_(compute),
      shape_(model.config().kv_shape(options.kv_dtype)),
      chunk_(options.chunk_tokens) {}

Result<std::unique_ptr<Arithmetic>> HostArithmetic::create(const LlamaModel& model,
                                                           Backend& backend, Queue& compute,
                                                           const ArithmeticOptions& options) {
  TERRACE_TRY(check_room_for_blas(backend.device_threads().concurrency()));
  std::unique_ptr<HostArithmetic> made(new HostArithmetic(model, compute, options));
  const ModelConfig& config = model.config();
  const std::size_t rows = PromptPlace::rows_max(options.chunk_tokens, multiply_tile_rows);
  TERRACE_ASSIGN(made->workspace_, model.make_workspace(rows, options.rope_length));
  TERRACE_ASSIGN(made->prefill_attention_,
                 PrefillAttention::create(made->shape_, backend.device_threads().concurrency()));
  TERRACE_ASSIGN(made->chunk_query_, FloatArray::create(rows * config.query_size()));
  TERRACE_ASSIGN(made->chunk_key_, FloatArray::create(rows * config.kv_size()));
  TERRACE_ASSIGN(made->chunk_value_, FloatArray::create(rows * config.kv_size()));
  TERRACE_ASSIGN(made->attention_, FloatArray::create(rows * config.query_size()));
  TERRACE_ASSIGN(made->step_query_, FloatArray::create(config.layers * config.query_size()));
  TERRACE_ASSIGN(made->logits_, FloatArray::create(config.vocabulary));
  TERRACE_TRY(resize_rows(made->step_rows_, made->shape_, 1));
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
                                 std::size_t first, std::size_t count) noexcept {
  const std::size_t token_elements = shape_.kv_heads * shape_.head_dim;
  const auto keys =
      chunk_key_.span().subspan(place_.before * token_elements, count * token_elements);
  const auto values =
      chunk_value_.span().subspan(place_.before * token_elements, count * token_elements);
  TERRACE_TRY(check_rows(layer, keys, values, shape_.dtype));
  const std::size_t dim = shape_.head_dim;
  for (std::size_t token = 0; token < count; ++token) {
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      std::byte* const row =
          bytes_of(rows) + (head * capacity + first + token) * shape_.row_bytes();
      const std::size_t from = (token * shape_.kv_heads + head) * dim;
      for (std::size_t i = 0; i < dim; ++i) {
        store_f32(row, shape_.dtype, i, keys[from + i]);
        store_f32(row, shape_.dtype, dim + i, values[from + i]);
      }
    }
  }
  return {};
}

Status HostArithmetic::reserve_prompt(std::size_t rows, std::size_t tokens) {
  TERRACE_ASSIGN(const std::size_t floats, checked_multiply(rows, model_.config().hidden_size));
  TERRACE_TRY(resize(hidden_, floats));
  for (FloatArray& kept : prompt_rows_) TERRACE_TRY(resize_rows(kept, shape_, tokens));
  prompt_tokens_ = tokens;
  return {};
}

Status HostArithmetic::begin_prompt(std::span<const TokenId> tokens) {
  place_ = {};
  TERRACE_TRY(reserve_prompt(tokens.size(), tokens.size()));
  return model_.embed(tokens, hidden_.data());
}

Status HostArithmetic::begin_piece(std::span<const TokenId> tokens, std::size_t position) {
  place_ = PromptPlace::of_piece({position, tokens.size()}, multiply_tile_rows);
  TERRACE_TRY(reserve_prompt(PromptPlace::rows_max(chunk_, multiply_tile_rows), chunk_));
  return model_.embed(tokens, hidden_of(place_.before));
}

void HostArithmetic::end_prompt() noexcept {
  hidden_ = {};
  for (FloatArray& rows : prompt_rows_) rows = {};
}

Status HostArithmetic::project_prompt(std::size_t layer, RowRange rows) {
  return enqueue([this, layer, rows, all = place_.computed(rows)](Parallel& threads) {
    const QkvTargets targets{.query = chunk_query_.data(),
                             .key = chunk_key_.data(),
                             .value = chunk_value_.data(),
                             .key_pre_rope = pre_rope_keys_.data()};
    model_.project_qkv(layer, hidden_of(place_.row_of(all.first_position)), all, targets,
                       workspace_, threads);
    return pack_rows(layer, prompt_rows_[layer % 2], prompt_tokens_,
                     place_.place_of(rows.first_position), rows.count);
  });
}

const float* HostArithmetic::prompt_query() const noexcept {
  return chunk_query_.data() + place_.before * model_.config().query_size();
}

KvTensors HostArithmetic::prompt_rows(std::size_t layer) const noexcept {
  return tensors(prompt_rows_[layer % 2], prompt_tokens_);
}

Result<std::span<const float>> HostArithmetic::read_queries(std::size_t rows) {
  return std::span(prompt_query(), rows * model_.config().query_size());
}

Status HostArithmetic::keep_pre_rope_keys() {
  if (!pre_rope_keys_.span().empty()) return {};
  TERRACE_ASSIGN(pre_rope_keys_, FloatArray::create(chunk_key_.span().size()));
  return {};
}

Result<std::span<const float>> HostArithmetic::read_pre_rope_keys(std::size_t rows) {
  const std::size_t size = model_.config().kv_size();
  return std::span<const float>(pre_rope_keys_.data() + place_.before * size, rows * size);
}

float* HostArithmetic::prompt_attention() noexcept {
  return attention_.data() + place_.before * model_.config().query_size();
}

Status HostArithmetic::attend_prompt(std::size_t layer, RowRange rows) {
  return enqueue([this, layer, rows](Parallel& threads) {
    prefill_attention_.run({.query = prompt_query(),
                            .kv = prompt_rows_[layer % 2].data(),
                            .out = prompt_attention(),
                            .capacity = prompt_tokens_,
                            .first_position = rows.first_position,
                            .rows = rows.count},
                           threads);
  });
}

Status HostArithmetic::finish_prompt(std::size_t layer, RowRange rows) {
  return enqueue([this, layer, all = place_.computed(rows)](Parallel& threads) {
    model_.finish_layer(layer, attention_.data(), all.count,
                        hidden_of(place_.row_of(all.first_position)), workspace_, threads);
  });
}

Status HostArithmetic::begin_step(TokenId token) {
  place_ = {};
  TERRACE_TRY(resize(hidden_, model_.config().hidden_size));
  return model_.embed({&token, 1}, hidden_.data());
}

Status HostArithmetic::project_step(std::size_t layer, std::size_t position) {
  return enqueue([this, layer, position](Parallel& threads) {
    const QkvTargets targets{.query = step_query_.data() + layer * model_.config().query_size(),
                             .key = chunk_key_.data(),
                             .value = chunk_value_.data(),
                             .key_pre_rope = pre_rope_keys_.data()};
    model_.project_qkv(layer, hidden_.data(), {position, 1}, targets, workspace_, threads);
    return pack_rows(layer, step_rows_, 1, 0, 1);
  });
}

const float* HostArithmetic::step_query(std::size_t layer) const noexcept {
  return query(layer).data();
}

KvTensors HostArithmetic::step_rows() const noexcept { return tensors(step_rows_, 1); }

Status HostArithmetic::keep_attention(std::size_t layer) {
  const std::size_t size = model_.config().query_size();
  if (kept_attention_.span().empty()) {
    TERRACE_ASSIGN(kept_attention_, FloatArray::create(model_.config().layers * size));
  }
  return enqueue([this, layer, size](Parallel& /*threads*/) {
    std::copy_n(attention_.data(), size, kept_attention_.data() + layer * size);
  });
}

Status HostArithmetic::finish_step(std::size_t layer) {
  return enqueue([this, layer](Parallel& threads) {
    model_.finish_layer(layer, attention_.data(), 1, hidden_.data(), workspace_, threads);
  });
}

Status HostArithmetic::speculate(std::size_t layer, const float* hidden, RowRange rows) {
  if (speculated_.span().empty()) {
    TERRACE_ASSIGN(speculated_, FloatArray::create(chunk_query_.span().size()));
  }
  return enqueue([this, layer, hidden, rows](Parallel& threads) {
    // The chunk's own keys and values are packed by now.
    const QkvTargets targets{
        .query = speculated_.data(), .key = chunk_key_.data(), .value = chunk_value_.data()};
    model_.project_qkv(layer, hidden, rows, targets, workspace_, threads);
  });
}

Status HostArithmetic::speculate_prompt(std::size_t layer, RowRange rows) {
  const RowRange all = place_.computed(rows);
  return speculate(layer, hidden_of(place_.row_of(all.first_position)), all);
}

Status HostArithmetic::speculate_step(std::size_t layer, std::size_t position) {
  return speculate(layer, hidden_.data(), {position, 1});
}

const float* HostArithmetic::speculated_query() const noexcept {
  return speculated_.data() + place_.before * model_.config().query_size();
}

Status HostArithmetic::predict(std::size_t token) {
  return enqueue([this, token](Parallel& threads) {
    model_.logits(hidden_of(place_.before + token), 1, logits_.data(), workspace_, threads);
  });
}

std::span<const float> HostArithmetic::query(std::size_t layer) const noexcept {
  const std::size_t size = model_.config().query_size();
  return step_query_.span().subspan(layer * size, size);
}

std::span<const float> HostArithmetic::kept_attention(std::size_t layer) const noexcept {
  const std::size_t size = model_.config().query_size();
  return kept_attention_.span().empty() ? std::span<const float>{}
                                        : kept_attention_.span().subspan(layer * size, size);
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
