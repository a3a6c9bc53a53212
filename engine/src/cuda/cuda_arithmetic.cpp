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
      chunk_(options.chunk_tokens),
      deadline_(options.deadline),
      rope_(model.config(), options.rope_length) {}

Result<std::unique_ptr<Arithmetic>> CudaArithmetic::create(const LlamaModel& model,
                                                           Backend& backend, Queue& compute,
                                                           const ArithmeticOptions& options) {
  if (model.config().head_dim > cuda::prefill_dims_max) {
    return fail(Errc::unsupported,
                "heads of {} dimensions: the engine's kernels take up to {}; use backend host",
                model.config().head_dim, cuda::prefill_dims_max);
  }
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
  // Where its device is the thread's.
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
  const std::size_t queries = config.query_size();
  const std::size_t rows = PromptPlace::rows_max(chunk_, piece_tile_rows);
  TERRACE_ASSIGN(weights_, allocate_floats(model_.parameters()));
  TERRACE_ASSIGN(frequencies_, allocate(rope_.pairs() * sizeof(double)));
  TERRACE_ASSIGN(step_hidden_, allocate_floats(config.hidden_size));
  TERRACE_ASSIGN(normed_, allocate_floats(rows * config.hidden_size));
  TERRACE_ASSIGN(qkv_, allocate_floats(rows * (queries + 2 * config.kv_size())));
  TERRACE_ASSIGN(gate_up_, allocate_floats(rows * 2 * config.intermediate_size));
  TERRACE_ASSIGN(activated_, allocate_floats(rows * config.intermediate_size));
  TERRACE_ASSIGN(chunk_query_, allocate_floats(chunk_ * queries));
  TERRACE_ASSIGN(attention_, allocate_floats(rows * queries));
  TERRACE_ASSIGN(step_query_, allocate_floats(config.layers * queries));
  TERRACE_ASSIGN(logits_, allocate_floats(config.vocabulary));
  TERRACE_ASSIGN(step_rows_, allocate(shape_.token_bytes()));
  TERRACE_ASSIGN(unfit_, allocate(config.layers * sizeof(std::uint32_t)));
  TERRACE_ASSIGN(seen_unfit_, allocate(config.layers * sizeof(std::uint32_t), Tier::host));
  TERRACE_ASSIGN(seen_chunk_query_, allocate_floats(chunk_ * queries, Tier::host));
  TERRACE_ASSIGN(seen_step_query_, allocate_floats(config.layers * queries, Tier::host));
  TERRACE_ASSIGN(seen_logits_, allocate_floats(config.vocabulary, Tier::host));
  TERRACE_ASSIGN(seen_rows_, allocate(chunk_ * shape_.token_bytes(), Tier::host));
  std::memset(seen_step_query_.data(), 0, seen_step_query_.bytes());
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
  if (place_.rows == 0) return cublas_->multiply(product);
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

KvTensors CudaArithmetic::tensors(const Buffer& rows, std::size_t capacity) const noexcept {
  return {.keys = rows.data(),
          .values = rows.data() + shape_.row_bytes() / 2,
          .token_stride = shape_.row_bytes(),
          .head_stride = capacity * shape_.row_bytes()};
}

Status CudaArithmetic::embed(std::span<const TokenId> tokens, float* hidden) {
  auto* const ids = tokens_.as<std::uint32_t>();
  std::ranges::transform(tokens, ids,
                         [](TokenId token) { return static_cast<std::uint32_t>(index(token)); });
  const cuda::Embed op{.embedding = on_device(model_.weights().embedding()),
                       .tokens = ids,
                       .rows = tokens.size(),
                       .size = model_.config().hidden_size,
                       .hidden = hidden,
                       .flags = unfit_.as<std::uint32_t>(),
                       .flag_count = model_.config().layers};
  return enqueue([op](const Launch& launch) { return cuda::embed(op, launch); });
}

MatrixProduct CudaArithmetic::product(const MatrixProduct& on_host) const noexcept {
  MatrixProduct made = on_host;
  made.weight = on_device(on_host.weight);
  return made;
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

Status CudaArithmetic::project(std::size_t layer, const float* hidden, std::size_t rows,
                               cuda::RotateAndPack rotation) {
  const ModelConfig& config = model_.config();
  const LayerWeights& weights = model_.weights().layer(layer);
  const std::size_t outputs = config.query_size() + 2 * config.kv_size();
  rotation.shape = shape_;
  rotation.qkv = qkv_.as<float>() + place_.before * outputs;
  rotation.frequencies = frequencies_.as<double>();
  rotation.attention_factor = rope_.attention_factor();
  rotation.rotated = config.rotated_dims();
  rotation.neighbours = config.architecture.rotates_neighbours;
  return enqueue([this, bias = weights.qkv_bias, heads = head_norms(weights, rows),
                  norm = normalisation(hidden, weights.input_norm, rows),
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

Status CudaArithmetic::finish_layer(std::size_t layer, std::size_t rows, float* hidden) {
  const ModelConfig& config = model_.config();
  const LayerWeights& weights = model_.weights().layer(layer);
  const std::size_t inner = config.intermediate_size;
  return enqueue([this, weights = &weights,
                  attended = product({.weight = weights.attention_out,
                                      .source = attention_.as<float>(),
                                      .target = hidden,
                                      .rows = rows,
                                      .outputs = config.hidden_size,
                                      .inputs = config.query_size(),
                                      .accumulate = true}),
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
                  down = product({.weight = weights.down,
                                  .source = activated_.as<float>(),
                                  .target = hidden,
                                  .rows = rows,
                                  .outputs = config.hidden_size,
                                  .inputs = inner,
                                  .accumulate = true})](const Launch& launch) -> Status {
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

Status CudaArithmetic::reserve_prompt(std::size_t rows, std::size_t tokens) {
  const auto resize = [this](Buffer& buffer, std::size_t count, std::size_t unit_bytes,
                             Tier tier = Tier::device) -> Status {
    TERRACE_ASSIGN(const std::size_t bytes, checked_multiply(count, unit_bytes));
    if (buffer && buffer.bytes() == bytes) return {};
    buffer.reset();
    TERRACE_ASSIGN(buffer, allocate(bytes, tier));
    return {};
  };
  TERRACE_TRY(resize(hidden_, rows, model_.config().hidden_size * sizeof(float)));
  TERRACE_TRY(resize(tokens_, tokens, sizeof(std::uint32_t), Tier::host));
  for (Buffer& kept : prompt_rows_) TERRACE_TRY(resize(kept, tokens, shape_.token_bytes()));
  prompt_tokens_ = tokens;
  return {};
}

Status CudaArithmetic::begin_prompt(std::span<const TokenId> tokens) {
  place_ = {};
  TERRACE_TRY(reserve_prompt(tokens.size(), tokens.size()));
  return embed(tokens, hidden_.as<float>());
}

Status CudaArithmetic::begin_piece(std::span<const TokenId> tokens, std::size_t position) {
  place_ = PromptPlace::of_piece({position, tokens.size()}, piece_tile_rows);
  TERRACE_TRY(reserve_prompt(PromptPlace::rows_max(chunk_, piece_tile_rows), chunk_));
  return embed(tokens, hidden_of(place_.before));
}

void CudaArithmetic::end_prompt() noexcept {
  hidden_.reset();
  for (Buffer& rows : prompt_rows_) rows.reset();
}

Status CudaArithmetic::project_prompt(std::size_t layer, RowRange rows) {
  const RowRange all = place_.computed(rows);
  return project(layer, hidden_of(place_.row_of(all.first_position)), all.count,
                 {.rows = rows,
                  .query = chunk_query_.as<float>(),
                  .kv = prompt_rows_[layer % 2].data(),
                  .capacity = prompt_tokens_,
                  .first = place_.place_of(rows.first_position),
                  .unfit = unfit_of(layer)});
}

const float* CudaArithmetic::prompt_query() const noexcept { return chunk_query_.as<float>(); }

KvTensors CudaArithmetic::prompt_rows(std::size_t layer) const noexcept {
  return tensors(prompt_rows_[layer % 2], prompt_tokens_);
}

Result<std::span<const float>> CudaArithmetic::read_queries(std::size_t rows) {
  const std::size_t floats = rows * model_.config().query_size();
  const CopyExtent seen{seen_chunk_query_.data(), chunk_query_.data(), floats * sizeof(float)};
  TERRACE_TRY(copy({&seen, 1}));
  return std::span<const float>(seen_chunk_query_.as<float>(), floats);
}

Status CudaArithmetic::keep_pre_rope_keys() {
  if (seen_pre_rope_keys_) return {};
  TERRACE_ASSIGN(seen_pre_rope_keys_,
                 allocate_floats(chunk_ * model_.config().kv_size(), Tier::host));
  return {};
}

Result<std::span<const float>> CudaArithmetic::read_pre_rope_keys(std::size_t rows) {
  // Rows of query, key and value, which rotate_and_pack() leaves as they are.
  const ModelConfig& config = model_.config();
  const std::size_t outputs = config.query_size() + 2 * config.kv_size();
  const float* const first = qkv_.as<float>() + place_.before * outputs + config.query_size();
  std::vector<CopyExtent> extents;
  for (std::size_t row = 0; row < rows; ++row) {
    float* const to = seen_pre_rope_keys_.as<float>() + row * config.kv_size();
    extents.push_back({reinterpret_cast<std::byte*>(to),
                       reinterpret_cast<const std::byte*>(first + row * outputs),
                       config.kv_size() * sizeof(float)});
  }
  TERRACE_TRY(copy(extents));
  return std::span<const float>(seen_pre_rope_keys_.as<float>(), rows * config.kv_size());
}

float* CudaArithmetic::prompt_attention() noexcept {
  return attention_.as<float>() + place_.before * model_.config().query_size();
}

Status CudaArithmetic::attend_prompt(std::size_t layer, RowRange rows) {
  const PrefillChunk chunk{.query = prompt_query(),
                           .kv = prompt_rows_[layer % 2].data(),
                           .out = prompt_attention(),
                           .capacity = prompt_tokens_,
                           .first_position = rows.first_position,
                           .rows = rows.count};
  return enqueue([shape = shape_, chunk](const Launch& launch) {
    return cuda::prefill_attention(shape, chunk, launch);
  });
}

Status CudaArithmetic::finish_prompt(std::size_t layer, RowRange rows) {
  const RowRange all = place_.computed(rows);
  return finish_layer(layer, all.count, hidden_of(place_.row_of(all.first_position)));
}

Status CudaArithmetic::begin_step(TokenId token) {
  end_prompt();  // of one that failed
  place_ = {};
  if (!tokens_) {
    TERRACE_ASSIGN(tokens_, allocate(sizeof(std::uint32_t), Tier::host));
  }
  return embed({&token, 1}, step_hidden_.as<float>());
}

Status CudaArithmetic::project_step(std::size_t layer, std::size_t position) {
  return project(layer, step_hidden_.as<float>(), 1,
                 {.rows = {position, 1},
                  .query = step_query_.as<float>() + layer * model_.config().query_size(),
                  .kv = step_rows_.data(),
                  .capacity = 1,
                  .unfit = unfit_of(layer)});
}

const float* CudaArithmetic::step_query(std::size_t layer) const noexcept {
  return step_query_.as<float>() + layer * model_.config().query_size();
}

KvTensors CudaArithmetic::step_rows() const noexcept { return tensors(step_rows_, 1); }

Status CudaArithmetic::keep_attention(std::size_t layer) {
  const std::size_t size = model_.config().query_size();
  if (!kept_attention_) {
    TERRACE_ASSIGN(kept_attention_, allocate_floats(model_.config().layers * size, Tier::host));
  }
  const std::size_t bytes = size * sizeof(float);
  const CopyExtent kept{kept_attention_.data() + layer * bytes, attention_.data(), bytes};
  return copy({&kept, 1});
}

Status CudaArithmetic::finish_step(std::size_t layer) {
  return finish_layer(layer, 1, step_hidden_.as<float>());
}

Status CudaArithmetic::speculate(std::size_t layer, const float* hidden, std::size_t rows,
                                 RowRange rotated) {
  if (!speculated_) {
    TERRACE_ASSIGN(speculated_rows_, allocate(chunk_ * shape_.token_bytes()));
    TERRACE_ASSIGN(speculated_, allocate_floats(chunk_ * model_.config().query_size()));
  }
  // Keys and values come along: the weights of a layer's projections are one matrix.
  return project(layer, hidden, rows,
                 {.rows = rotated,
                  .query = speculated_.as<float>(),
                  .kv = speculated_rows_.data(),
                  .capacity = chunk_});
}

Status CudaArithmetic::speculate_prompt(std::size_t layer, RowRange rows) {
  const RowRange all = place_.computed(rows);
  return speculate(layer, hidden_of(place_.row_of(all.first_position)), all.count, rows);
}

Status CudaArithmetic::speculate_step(std::size_t layer, std::size_t position) {
  return speculate(layer, step_hidden_.as<float>(), 1, {position, 1});
}

Status CudaArithmetic::predict(std::size_t token) {
  const ModelConfig& config = model_.config();
  const float* const hidden = hidden_ ? hidden_of(place_.before + token) : step_hidden_.as<float>();
  const auto kernels =
      [norm = normalisation(hidden, model_.weights().final_norm(), 1),
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
  const CopyExtent seen[] = {{seen_step_query_.data(), step_query_.data(), step_query_.bytes()},
                             {seen_logits_.data(), logits_.data(), logits_.bytes()},
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

std::span<const float> CudaArithmetic::query(std::size_t layer) const noexcept {
  const std::size_t size = model_.config().query_size();
  return {seen_step_query_.as<float>() + layer * size, size};
}

std::span<const float> CudaArithmetic::kept_attention(std::size_t layer) const noexcept {
  if (!kept_attention_) return {};
  const std::size_t size = model_.config().query_size();
  return {kept_attention_.as<float>() + layer * size, size};
}

Result<KvTensors> CudaArithmetic::read_rows(const KvTensors& rows, std::size_t first,
                                            std::size_t count) {
  const std::size_t bytes = count * shape_.row_bytes();
  std::vector<CopyExtent> extents;
  for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
    extents.push_back({seen_rows_.data() + head * bytes,
                       rows.keys + head * rows.head_stride + first * rows.token_stride, bytes});
  }
  TERRACE_TRY(copy(extents));
  return tensors(seen_rows_, count);
}

Result<std::unique_ptr<Arithmetic>> make_cuda_arithmetic(const LlamaModel& model, Backend& backend,
                                                         Queue& compute,
                                                         const ArithmeticOptions& options) {
  return CudaArithmetic::create(model, backend, compute, options);
}

}  // namespace terrace::engine
