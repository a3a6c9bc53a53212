#include "host_arithmetic.hpp"

#include <type_traits>

#include "row_check.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/engine/matrix.hpp"

namespace terrace::engine {
namespace {

/// Makes an array of another size anew; 0 rows leave it empty.
Status resize(FloatArray& array, std::size_t rows, std::size_t row_floats) {
  TERRACE_ASSIGN(const std::size_t floats, checked_multiply(rows, row_floats));
  if (array.size() == floats) return {};
  array = {};
  TERRACE_ASSIGN(array, FloatArray::create(floats));
  return {};
}

}  // namespace

HostArithmetic::HostArithmetic(const LlamaModel& model, Queue& compute,
                               const ArithmeticOptions& options)
    : model_(model),
      compute_(compute),
      shape_(model.config().kv_shape(options.kv_dtype)),
      chunk_rows_(align_up(options.chunk_tokens, multiply_tile_rows)) {}

Result<std::unique_ptr<Arithmetic>> HostArithmetic::create(const LlamaModel& model,
                                                           Backend& backend, Queue& compute,
                                                           const ArithmeticOptions& options) {
  TERRACE_TRY(check_room_for_blas(backend.device_threads().concurrency()));
  std::unique_ptr<HostArithmetic> made(new HostArithmetic(model, compute, options));
  const ModelConfig& config = model.config();
  TERRACE_ASSIGN(made->workspace_, model.make_workspace(made->chunk_rows_, options.rope_length));
  TERRACE_ASSIGN(made->key_, FloatArray::create(made->chunk_rows_ * config.kv_size()));
  TERRACE_ASSIGN(made->value_, FloatArray::create(made->chunk_rows_ * config.kv_size()));
  TERRACE_ASSIGN(made->logits_, FloatArray::create(config.vocabulary));
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

template <typename Work>
Status HostArithmetic::enqueue_chunks(Work work) {
  for (std::size_t row = 0; row < piece_.count; row += chunk_rows_) {
    TERRACE_TRY(enqueue([work, chunk = piece_.chunk(row, chunk_rows_)](Parallel& threads) {
      return work(chunk, threads);
    }));
  }
  return {};
}

Status HostArithmetic::begin(const PieceSetup& piece) {
  const ModelConfig& config = model_.config();
  const std::size_t tokens = piece.tokens.size();
  piece_ = PieceRows::of({piece.position, tokens}, piece.decodes ? 1 : multiply_tile_rows);
  const std::size_t rows = piece_.count;
  TERRACE_TRY(resize(hidden_, rows, config.hidden_size));
  TERRACE_TRY(resize(query_, rows, config.query_size()));
  TERRACE_TRY(resize(attention_, rows, config.query_size()));
  TERRACE_TRY(resize(rows_, tokens, divide_up(shape_.token_bytes(), sizeof(float))));
  TERRACE_TRY(resize(pre_rope_keys_, piece.keeps_pre_rope_keys ? rows : 0, config.kv_size()));
  TERRACE_TRY(resize(speculated_, piece.speculates ? rows : 0, config.query_size()));
  return model_.embed(piece.tokens, hidden_of(piece_.before));
}

void HostArithmetic::release() noexcept {
  for (FloatArray* const array :
       {&hidden_, &query_, &attention_, &rows_, &pre_rope_keys_, &speculated_}) {
    *array = {};
  }
}

Status HostArithmetic::pack_rows(std::size_t layer, const PieceRows::Chunk& chunk) noexcept {
  const std::size_t dim = shape_.head_dim;
  const std::size_t size = shape_.kv_heads * dim;
  const std::size_t first = chunk.before(piece_) * size;
  const auto keys = key_.span().subspan(first, chunk.tokens * size);
  const auto values = value_.span().subspan(first, chunk.tokens * size);
  TERRACE_TRY(check_rows(layer, keys, values, shape_.dtype));
  auto* const rows = reinterpret_cast<std::byte*>(rows_.data());
  for (std::size_t token = 0; token < chunk.tokens; ++token) {
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      const std::size_t at = head * piece_.tokens.count + chunk.first_token + token;
      std::byte* const row = rows + at * shape_.row_bytes();
      const std::size_t from = (token * shape_.kv_heads + head) * dim;
      for (std::size_t i = 0; i < dim; ++i) {
        store_f32(row, shape_.dtype, i, keys[from + i]);
        store_f32(row, shape_.dtype, dim + i, values[from + i]);
      }
    }
  }
  return {};
}

Status HostArithmetic::project(std::size_t layer) {
  return enqueue_chunks([this, layer](const PieceRows::Chunk& chunk, Parallel& threads) {
    const ModelConfig& config = model_.config();
    const bool keeps = pre_rope_keys_.size() > 0;
    const QkvTargets targets{
        .query = query_.data() + chunk.row * config.query_size(),
        .key = key_.data(),
        .value = value_.data(),
        .key_pre_rope = keeps ? pre_rope_keys_.data() + chunk.row * config.kv_size() : nullptr};
    model_.project_qkv(layer, hidden_of(chunk.row), chunk.computed, targets, workspace_, threads);
    return pack_rows(layer, chunk);
  });
}

const float* HostArithmetic::query() const noexcept {
  return query_.data() + piece_.before * model_.config().query_size();
}

KvTensors HostArithmetic::rows() const noexcept {
  const auto* const keys = reinterpret_cast<const std::byte*>(rows_.data());
  return {.keys = keys,
          .values = keys + shape_.row_bytes() / 2,
          .token_stride = shape_.row_bytes(),
          .head_stride = piece_.tokens.count * shape_.row_bytes()};
}

float* HostArithmetic::attention() noexcept {
  return attention_.data() + piece_.before * model_.config().query_size();
}

Result<std::span<const float>> HostArithmetic::read_queries(std::size_t count) {
  const std::size_t size = model_.config().query_size();
  return std::span(query() + (piece_.tokens.count - count) * size, count * size);
}

std::span<const float> HostArithmetic::read_pre_rope_keys() const noexcept {
  const std::size_t size = model_.config().kv_size();
  return pre_rope_keys_.span().subspan(piece_.before * size, piece_.tokens.count * size);
}

Status HostArithmetic::speculate(std::size_t layer) {
  return enqueue_chunks([this, layer](const PieceRows::Chunk& chunk, Parallel& threads) {
    // The tokens' own keys and values are packed by now.
    const QkvTargets targets{.query = speculated_.data() + chunk.row * model_.config().query_size(),
                             .key = key_.data(),
                             .value = value_.data()};
    model_.project_qkv(layer, hidden_of(chunk.row), chunk.computed, targets, workspace_, threads);
  });
}

const float* HostArithmetic::speculated_query() const noexcept {
  return speculated_.data() + piece_.before * model_.config().query_size();
}

Status HostArithmetic::keep(std::size_t layer) {
  const std::size_t size = model_.config().query_size();
  TERRACE_TRY(resize(kept_, model_.config().layers, 2 * size));
  return enqueue([this, layer, size](Parallel& /*threads*/) {
    float* const kept = kept_.data() + layer * 2 * size;
    std::copy_n(query_.data(), size, kept);
    std::copy_n(attention_.data(), size, kept + size);
  });
}

Status HostArithmetic::finish(std::size_t layer) {
  return enqueue_chunks([this, layer](const PieceRows::Chunk& chunk, Parallel& threads) {
    model_.finish_layer(layer, attention_.data() + chunk.row * model_.config().query_size(),
                        chunk.computed.count, hidden_of(chunk.row), workspace_, threads);
  });
}

Status HostArithmetic::predict() {
  return enqueue([this](Parallel& threads) {
    const std::size_t last = piece_.before + piece_.tokens.count - 1;
    model_.logits(hidden_of(last), 1, logits_.data(), workspace_, threads);
  });
}

std::span<const float> HostArithmetic::kept_query(std::size_t layer) const noexcept {
  if (kept_.size() == 0) return {};
  const std::size_t size = model_.config().query_size();
  return kept_.span().subspan(layer * 2 * size, size);
}

std::span<const float> HostArithmetic::kept_attention(std::size_t layer) const noexcept {
  if (kept_.size() == 0) return {};
  const std::size_t size = model_.config().query_size();
  return kept_.span().subspan((layer * 2 + 1) * size, size);
}

Result<std::unique_ptr<Arithmetic>> make_host_arithmetic(const LlamaModel& model, Backend& backend,
                                                         Queue& compute,
                                                         const ArithmeticOptions& options) {
  return HostArithmetic::create(model, backend, compute, options);
}

}  // namespace terrace::engine
