#include "cuda/cuda_arithmetic.hpp"

#include <algorithm>
#include <cstring>

#include "row_check.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/offload/cuda/enqueue.hpp"

namespace terrace::engine {
namespace {

using kernels::cuda::Launch;

constexpr std::size_t upload_bytes = std::size_t{16} << 20;

// Rows of a product with a piece of a prompt: half of a piece of 512 tokens, and enough to fill
// most of a device.
constexpr std::size_t piece_tile_rows = 256;

}  // namespace

CudaArithmetic::CudaArithmetic(const LlamaModel& model, Backend& backend, Queue& compute,
                               const ArithmeticOptions& options)
    : model_(model),
      backend_(backend),
      compute_(compute),
      shape_(model.config().kv_shape(options.kv_dtype)),
      chunk_rows_(align_up(options.chunk_tokens, piece_tile_rows)),
      deadline_(options.deadline),
      rope_(model.config(), options.rope_length) {}

Result<std::unique_ptr<Arithmetic>> CudaArithmetic::create(const LlamaModel& model,
                                                           Backend& backend, Queue& compute,
                                                           const ArithmeticOptions& options) {
  std::unique_ptr<CudaArithmetic> made(new CudaArithmetic(model, backend, compute, options));
  TERRACE_TRY(made->reserve());
  TERRACE_TRY(made->use_cublas());
  const Rope& rope = made->rope_;
  std::vector<double> frequencies(rope.pairs());
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = rope.frequency(i);
  TERRACE_TRY(made->upload(std::as_bytes(std::span(frequencies)), made->frequencies_));
  TERRACE_TRY(made->upload(std::as_bytes(model.weights().values()), made->weights_));
  return made;
}

CudaArithmetic::~CudaArithmetic() {
  if (cublas_ == nullptr) return;
  // Runs where the thread's device is this one.
  static_cast<void>(enqueue([this](const Launch&) -> Status {
    cublas_.reset();
    return {};
  }));
  static_cast<void>(compute_.drain(deadline_));
}

Result<Buffer> CudaArithmetic::allocate(std::size_t bytes, Tier tier) {
  return backend_.allocate(
      {.bytes = bytes, .alignment = 256, .tier = tier, .purpose = Purpose::model});
}

Result<Buffer> CudaArithmetic::allocate_floats(std::size_t floats, Tier tier) {
  TERRACE_ASSIGN(const std::size_t bytes, checked_multiply(floats, sizeof(float)));
  return allocate(bytes, tier);
}

Status CudaArithmetic::reserve() {
  const ModelConfig& config = model_.config();
  const std::size_t rows = chunk_rows_;
  TERRACE_ASSIGN(weights_, allocate_floats(model_.parameters()));
  TERRACE_ASSIGN(frequencies_, allocate(rope_.pairs() * sizeof(double)));
  TERRACE_ASSIGN(normed_, allocate_floats(rows * config.hidden_size));
  TERRACE_ASSIGN(qkv_, allocate_floats(rows * (config.query_size() + 2 * config.kv_size())));
  TERRACE_ASSIGN(gate_up_, allocate_floats(rows * 2 * config.intermediate_size));
  TERRACE_ASSIGN(activated_, allocate_floats(rows * config.intermediate_size));
  TERRACE_ASSIGN(logits_, allocate_floats(config.vocabulary));
  TERRACE_ASSIGN(unfit_, allocate(config.layers * sizeof(std::uint32_t)));
  TERRACE_ASSIGN(seen_unfit_, allocate(config.layers * sizeof(std::uint32_t), Tier::host));
  TERRACE_ASSIGN(seen_logits_, allocate_floats(config.vocabulary, Tier::host));
  std::memset(seen_logits_.data(), 0, seen_logits_.bytes());
  std::memset(seen_unfit_.data(), 0, seen_unfit_.bytes());
  return {};
}

Status CudaArithmetic::use_cublas() {
  const std::optional<cuda::CublasFunctions> functions = cuda::load_cublas();
  if (!functions) return {};
  TERRACE_ASSIGN(cublas_workspace_, allocate(cuda::Cublas::workspace_bytes));
  TERRACE_TRY(enqueue([this, functions](const Launch& launch) -> Status {
    auto made = cuda::Cublas::create(*functions, cublas_workspace_.data(), launch);
    if (made) cublas_ = std::move(*made);
    return {};
  }));
  TERRACE_TRY(compute_.drain(deadline_));
  if (cublas_ == nullptr) cublas_workspace_.reset();
  return {};
}

Status CudaArithmetic::multiply(const MatrixProduct& product, const Launch& launch) const {
  // For one row either way reads each weight once.
  if (cublas_ == nullptr || product.rows == 1) return cuda::multiply(product, launch);
  for (std::size_t row = 0; row < product.rows; row += piece_tile_rows) {
    MatrixProduct tile = product;
    tile.rows = piece_tile_rows;
    tile.source += row * product.inputs;
    tile.target += row * product.outputs;
    TERRACE_TRY(cublas_->multiply(tile));
  }
  return {};
}

Status CudaArithmetic::upload(std::span<const std::byte> source, Buffer& target) {
  TERRACE_ASSIGN(const Buffer locked, allocate(std::min(source.size(), upload_bytes), Tier::host));
  for (std::size_t at = 0; at < source.size(); at += locked.bytes()) {
    const std::size_t bytes = std::min(locked.bytes(), source.size() - at);
    std::memcpy(locked.data(), source.data() + at, bytes);
    const CopyExtent extent{target.data() + at, locked.data(), bytes};
    TERRACE_ASSIGN(const Ticket copied, compute_.copy(Phase::model, {&extent, 1}));
    TERRACE_TRY(wait(copied, deadline_));
  }
  return {};
}

template <typename Kernels>
Status CudaArithmetic::enqueue(Kernels kernels) {
  return offload::enqueue_kernels(compute_, Phase::model, kernels).map([](Ticket) {});
}

Status CudaArithmetic::copy(std::span<const CopyExtent> extents) {
  return compute_.copy(Phase::model, extents).map([](Ticket) {});
}

KvTensors CudaArithmetic::tensors(const Buffer& rows) const noexcept {
  return {.keys = rows.data(),
          .values = rows.data() + shape_.row_bytes() / 2,
          .token_stride = shape_.row_bytes(),
          .head_stride = piece_.tokens.count * shape_.row_bytes()};
}

Status CudaArithmetic::embed(std::span<const TokenId> tokens) {
  auto* const ids = tokens_.as<std::uint32_t>();
  std::ranges::transform(tokens, ids,
                         [](TokenId token) { return static_cast<std::uint32_t>(index(token)); });
  const cuda::Embed op{.embedding = on_device(model_.weights().embedding()),
                       .tokens = ids,
                       .rows = tokens.size(),
                       .size = model_.config().hidden_size,
                       .hidden = hidden_of(piece_.before),
                       .flags = unfit_.as<std::uint32_t>(),
                       .flag_count = model_.config().layers};
  return enqueue([op](const Launch& launch) { return cuda::embed(op, launch); });
}

MatrixProduct CudaArithmetic::product(const MatrixProduct& on_host) const noexcept {
  MatrixProduct made = on_host;
  made.weight = on_device(on_host.weight);
  return made;
}

MatrixProduct CudaArithmetic::added_to_hidden(const PieceRows::Chunk& chunk, const float* weight,
                                              const float* source,
                                              std::size_t inputs) const noexcept {
  return product({.weight = weight,
                  .source = source,
                  .target = hidden_of(chunk.row),
                  .rows = chunk.computed.count,
                  .outputs = model_.config().hidden_size,
                  .inputs = inputs,
                  .accumulate = true});
}

Status CudaArithmetic::add_bias(const float* bias, std::size_t rows, std::size_t size,
                                float* target, const Launch& launch) const {
  if (bias == nullptr) return {};
  return cuda::add_bias({.bias = on_device(bias), .target = target, .rows = rows, .size = size},
                        launch);
}

cuda::Normalise CudaArithmetic::normalisation(const float* source, const float* weight,
                                              std::size_t rows) const noexcept {
  return {.source = source,
          .weight = on_device(weight),
          .target = normed_.as<float>(),
          .rows = rows,
          .size = model_.config().hidden_size,
          .epsilon = model_.config().rms_norm_epsilon};
}

std::optional<cuda::NormaliseHeads> CudaArithmetic::head_norms(const LayerWeights& weights,
                                                               std::size_t rows) const noexcept {
  if (weights.query_norm == nullptr) return {};
  return cuda::NormaliseHeads{.qkv = qkv_.as<float>(),
                              .shape = shape_,
                              .query_weight = on_device(weights.query_norm),
                              .key_weight = on_device(weights.key_norm),
                              .rows = rows,
                              .epsilon = model_.config().rms_norm_epsilon};
}

Status CudaArithmetic::project(std::size_t layer, const PieceRows::Chunk& chunk,
                               cuda::RotateAndPack rotation) {
  const ModelConfig& config = model_.config();
  const LayerWeights& weights = model_.weights().layer(layer);
  const std::size_t rows = chunk.computed.count;
  const std::size_t outputs = config.query_size() + 2 * config.kv_size();
  rotation.shape = shape_;
  rotation.rows = {piece_.tokens.first_position + chunk.first_token, chunk.tokens};
  rotation.qkv = qkv_.as<float>() + chunk.before(piece_) * outputs;
  rotation.frequencies = frequencies_.as<double>();
  rotation.attention_factor = rope_.attention_factor();
  rotation.rotated = config.rotated_dims();
  rotation.neighbours = config.architecture.rotates_neighbours;
  return enqueue([this, bias = weights.qkv_bias, heads = head_norms(weights, rows),
                  norm = normalisation(hidden_of(chunk.row), weights.input_norm, rows),
                  qkv = product({.weight = weights.qkv,
                                 .source = normed_.as<float>(),
                                 .target = qkv_.as<float>(),
                                 .rows = rows,
                                 .outputs = outputs,
                                 .inputs = config.hidden_size}),
                  rotation](const Launch& launch) -> Status {
    TERRACE_TRY(cuda::normalise(norm, launch));
    TERRACE_TRY(multiply(qkv, launch));
    TERRACE_TRY(add_bias(bias, qkv.rows, qkv.outputs, qkv.target, launch));
    if (heads) TERRACE_TRY(cuda::normalise_heads(*heads, launch));
    return cuda::rotate_and_pack(rotation, launch);
  });
}

Status CudaArithmetic::finish(std::size_t layer, const PieceRows::Chunk& chunk) {
  const ModelConfig& config = model_.config();
  const std::size_t rows = chunk.computed.count;
  float* const hidden = hidden_of(chunk.row);
  const LayerWeights& weights = model_.weights().layer(layer);
  const std::size_t inner = config.intermediate_size;
  const float* const attention = attention_.as<float>() + chunk.row * config.query_size();
  return enqueue(
      [this, weights = &weights,
       attended = added_to_hidden(chunk, weights.attention_out, attention, config.query_size()),
       norm = normalisation(hidden, weights.attention_norm, rows),
       gate_up = product({.weight = weights.gate_up,
                          .source = normed_.as<float>(),
                          .target = gate_up_.as<float>(),
                          .rows = rows,
                          .outputs = 2 * inner,
                          .inputs = config.hidden_size}),
       gates = cuda::Swiglu{.gate_up = gate_up_.as<float>(),
                            .target = activated_.as<float>(),
                            .rows = rows,
                            .size = inner},
       down = added_to_hidden(chunk, weights.down, activated_.as<float>(), inner)](
          const Launch& launch) -> Status {
        const auto add = [&](const float* bias, const MatrixProduct& to) {
          return add_bias(bias, to.rows, to.outputs, to.target, launch);
        };
        TERRACE_TRY(multiply(attended, launch));
        TERRACE_TRY(add(weights->attention_out_bias, attended));
        TERRACE_TRY(cuda::normalise(norm, launch));
        TERRACE_TRY(multiply(gate_up, launch));
        TERRACE_TRY(add(weights->gate_up_bias, gate_up));
        TERRACE_TRY(cuda::swiglu(gates, launch));
        TERRACE_TRY(multiply(down, launch));
        return add(weights->down_bias, down);
      });
}

Status CudaArithmetic::resize(Buffer& buffer, std::size_t rows, std::size_t row_bytes, Tier tier) {
  TERRACE_ASSIGN(const std::size_t bytes, checked_multiply(rows, row_bytes));
  if (buffer && buffer.bytes() == bytes) return {};
  buffer.reset();
  if (bytes == 0) return {};
  TERRACE_ASSIGN(buffer, allocate(bytes, tier));
  return {};
}

Status CudaArithmetic::reserve(const PieceSetup& piece) {
  const ModelConfig& config = model_.config();
  const std::size_t tokens = piece.tokens.size();
  const std::size_t keys = piece.keeps_pre_rope_keys ? tokens : 0;
  const std::size_t speculated = piece.speculates ? tokens : 0;
  const std::size_t query_bytes = config.query_size() * sizeof(float);
  TERRACE_TRY(resize(tokens_, tokens, sizeof(std::uint32_t), Tier::host));
  TERRACE_TRY(resize(hidden_, piece_.count, config.hidden_size * sizeof(float)));
  TERRACE_TRY(resize(query_, tokens, query_bytes));
  TERRACE_TRY(resize(attention_, piece_.count, query_bytes));
  TERRACE_TRY(resize(rows_, tokens, shape_.token_bytes()));
  TERRACE_TRY(resize(seen_pre_rope_keys_, keys, config.kv_size() * sizeof(float), Tier::host));
  TERRACE_TRY(resize(speculated_, speculated, query_bytes));
  return resize(speculated_rows_, std::min(speculated, chunk_rows_), shape_.token_bytes());
}

Status CudaArithmetic::begin(const PieceSetup& piece) {
  piece_ =
      PieceRows::of({piece.position, piece.tokens.size()}, piece.decodes ? 1 : piece_tile_rows);
  TERRACE_TRY(reserve(piece));
  return embed(piece.tokens);
}

void CudaArithmetic::release() noexcept {
  for (Buffer* const buffer :
       {&tokens_, &hidden_, &query_, &attention_, &rows_, &seen_pre_rope_keys_, &speculated_,
        &speculated_rows_, &seen_query_, &seen_rows_}) {
    buffer->reset();
  }
}

template <typename Call>
Status CudaArithmetic::for_each_chunk(Call call) {
  for (std::size_t row = 0; row < piece_.count; row += chunk_rows_) {
    TERRACE_TRY(call(piece_.chunk(row, chunk_rows_)));
  }
  return {};
}

Status CudaArithmetic::project(std::size_t layer) {
  return for_each_chunk([&](const PieceRows::Chunk& chunk) -> Status {
    TERRACE_TRY(
        project(layer, chunk,
                {.query = query_.as<float>() + chunk.first_token * model_.config().query_size(),
                 .kv = rows_.data(),
                 .capacity = piece_.tokens.count,
                 .first = chunk.first_token,
                 .unfit = unfit_of(layer)}));
    return seen_pre_rope_keys_ ? read_pre_rope_keys(chunk) : Status{};
  });
}

KvTensors CudaArithmetic::rows() const noexcept { return tensors(rows_); }

float* CudaArithmetic::attention() noexcept {
  return attention_.as<float>() + piece_.before * model_.config().query_size();
}

Result<std::span<const float>> CudaArithmetic::read_queries(std::size_t count) {
  const std::size_t size = model_.config().query_size();
  TERRACE_TRY(resize(seen_query_, count, size * sizeof(float), Tier::host));
  const float* const last = query() + (piece_.tokens.count - count) * size;
  const CopyExtent seen{seen_query_.data(), reinterpret_cast<const std::byte*>(last),
                        seen_query_.bytes()};
  TERRACE_TRY(copy({&seen, 1}));
  return std::span<const float>(seen_query_.as<float>(), count * size);
}

Status CudaArithmetic::read_pre_rope_keys(const PieceRows::Chunk& chunk) {
  // Rows of query, key and value, which rotate_and_pack() does not change.
  const ModelConfig& config = model_.config();
  const std::size_t outputs = config.query_size() + 2 * config.kv_size();
  const float* const first =
      qkv_.as<float>() + chunk.before(piece_) * outputs + config.query_size();
  float* const seen = seen_pre_rope_keys_.as<float>() + chunk.first_token * config.kv_size();
  std::vector<CopyExtent> extents;
  for (std::size_t row = 0; row < chunk.tokens; ++row) {
    extents.push_back({reinterpret_cast<std::byte*>(seen + row * config.kv_size()),
                       reinterpret_cast<const std::byte*>(first + row * outputs),
                       config.kv_size() * sizeof(float)});
  }
  return copy(extents);
}

std::span<const float> CudaArithmetic::read_pre_rope_keys() const noexcept {
  return {seen_pre_rope_keys_.as<float>(), piece_.tokens.count * model_.config().kv_size()};
}

Result<KvTensors> CudaArithmetic::read_rows() {
  TERRACE_TRY(resize(seen_rows_, piece_.tokens.count, shape_.token_bytes(), Tier::host));
  const CopyExtent seen{seen_rows_.data(), rows_.data(), rows_.bytes()};
  TERRACE_TRY(copy({&seen, 1}));
  return tensors(seen_rows_);
}

Status CudaArithmetic::speculate(std::size_t layer) {
  // Keys and values come along: the weights of a layer's projections are one matrix.
  return for_each_chunk([&](const PieceRows::Chunk& chunk) {
    return project(
        layer, chunk,
        {.query = speculated_.as<float>() + chunk.first_token * model_.config().query_size(),
         .kv = speculated_rows_.data(),
         .capacity = std::min(piece_.tokens.count, chunk_rows_)});
  });
}

Status CudaArithmetic::keep(std::size_t layer) {
  const std::size_t bytes = model_.config().query_size() * sizeof(float);
  TERRACE_TRY(resize(kept_, 2 * model_.config().layers, bytes, Tier::host));
  const CopyExtent kept[] = {{kept_.data() + 2 * layer * bytes, query_.data(), bytes},
                             {kept_.data() + (2 * layer + 1) * bytes, attention_.data(), bytes}};
  return copy(kept);
}

Status CudaArithmetic::finish(std::size_t layer) {
  return for_each_chunk([&](const PieceRows::Chunk& chunk) { return finish(layer, chunk); });
}

Status CudaArithmetic::predict() {
  const ModelConfig& config = model_.config();
  const float* const last = hidden_of(piece_.before + piece_.tokens.count - 1);
  const auto kernels =
      [norm = normalisation(last, model_.weights().final_norm(), 1),
       head = product({.weight = model_.weights().head(),
                       .source = normed_.as<float>(),
                       .target = logits_.as<float>(),
                       .rows = 1,
                       .outputs = config.vocabulary,
                       .inputs = config.hidden_size})](const Launch& launch) -> Status {
    TERRACE_TRY(cuda::normalise(norm, launch));
    return cuda::multiply(head, launch);
  };
  TERRACE_TRY(enqueue(kernels));
  const CopyExtent seen[] = {{seen_logits_.data(), logits_.data(), logits_.bytes()},
                             {seen_unfit_.data(), unfit_.data(), unfit_.bytes()}};
  return copy(seen);
}

Status CudaArithmetic::show_checks() {
  const CopyExtent seen{seen_unfit_.data(), unfit_.data(), unfit_.bytes()};
  return copy({&seen, 1});
}

std::span<const float> CudaArithmetic::logits() const noexcept {
  return {seen_logits_.as<float>(), model_.config().vocabulary};
}

Status CudaArithmetic::check_stored_rows() const {
  const std::span flags(seen_unfit_.as<const std::uint32_t>(), model_.config().layers);
  const auto unfit = std::ranges::find(flags, 1U);
  if (unfit == flags.end()) return {};
  return unfit_rows(static_cast<std::size_t>(unfit - flags.begin()), shape_.dtype);
}

std::span<const float> CudaArithmetic::kept_query(std::size_t layer) const noexcept {
  if (!kept_) return {};
  const std::size_t size = model_.config().query_size();
  return {kept_.as<float>() + 2 * layer * size, size};
}

std::span<const float> CudaArithmetic::kept_attention(std::size_t layer) const noexcept {
  if (!kept_) return {};
  const std::size_t size = model_.config().query_size();
  return {kept_.as<float>() + (2 * layer + 1) * size, size};
}

Result<std::unique_ptr<Arithmetic>> make_cuda_arithmetic(const LlamaModel& model, Backend& backend,
                                                         Queue& compute,
                                                         const ArithmeticOptions& options) {
  return CudaArithmetic::create(model, backend, compute, options);
}

}  // namespace terrace::engine
