#include "terrace/engine/llama_model.hpp"

#include <algorithm>
#include <utility>

#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/engine/matrix.hpp"
#include "terrace/engine/vector_math.hpp"

namespace terrace::engine {
namespace {

// Rows of cheap per-row work in one part: some microseconds.
constexpr std::size_t rows_at_once = 8;

/// Calls row(r) for all rows, in parts of fixed size.
template <typename Row>
void for_each_row(std::size_t rows, Parallel& parallel, Row row) {
  parallel.for_each(divide_up(rows, rows_at_once), [&](std::size_t tile) {
    const std::size_t end = std::min(rows, (tile + 1) * rows_at_once);
    for (std::size_t r = tile * rows_at_once; r < end; ++r) row(r);
  });
}

/// target[row, i] += bias[i], where there is a bias.
void add_bias(const float* bias, std::size_t rows, std::size_t size, float* target,
              Parallel& parallel) {
  if (bias == nullptr) return;
  for_each_row(rows, parallel, [&](std::size_t row) {
    for (std::size_t i = 0; i < size; ++i) target[row * size + i] += bias[i];
  });
}

}  // namespace

LlamaModel::LlamaModel(ModelConfig config, LlamaWeights weights)
    : config_(std::move(config)), weights_(std::move(weights)) {}

Result<LlamaModel> LlamaModel::load(const std::filesystem::path& folder) {
  TERRACE_ASSIGN(ModelConfig config, read_model_config(folder));
  TERRACE_ASSIGN(const Safetensors tensors, Safetensors::open(folder));
  auto weights = LlamaWeights::load(tensors, config);
  if (!weights) return tl::unexpected(weights.error().while_doing(folder.string()));
  for (const ModelNote& note : weights->notes()) {
    config.notes.push_back({note.level, fmt::format("{}: {}", folder.string(), note.text)});
  }
  keep_blas_on_one_thread();
  return LlamaModel(std::move(config), std::move(*weights));
}

Result<Workspace> LlamaModel::make_workspace(std::size_t rows_max, std::size_t rope_length) const {
  if (rows_max == 0 || rows_max > (std::size_t{1} << 20)) {
    return fail(Errc::invalid_argument, "a workspace of {} rows; 1 to 2^20 are accepted", rows_max);
  }
  const std::size_t qkv_size = config_.query_size() + 2 * config_.kv_size();
  Workspace workspace{.rows_max = rows_max, .rope = Rope(config_, rope_length)};
  TERRACE_ASSIGN(workspace.normed, FloatArray::create(rows_max * config_.hidden_size));
  TERRACE_ASSIGN(workspace.qkv, FloatArray::create(rows_max * qkv_size));
  TERRACE_ASSIGN(workspace.gate_up, FloatArray::create(rows_max * 2 * config_.intermediate_size));
  TERRACE_ASSIGN(workspace.activated, FloatArray::create(rows_max * config_.intermediate_size));
  TERRACE_ASSIGN(workspace.angles, RopeAngles::create(rows_max, workspace.rope.pairs()));
  return workspace;
}

Status LlamaModel::check(std::span<const TokenId> tokens) const {
  for (const TokenId token : tokens) {
    if (index(token) < config_.vocabulary) continue;
    return fail(Errc::invalid_argument, "token {} is outside the model's vocabulary of {}",
                index(token), config_.vocabulary);
  }
  return {};
}

Status LlamaModel::embed(std::span<const TokenId> tokens, float* hidden) const {
  TERRACE_TRY(check(tokens));
  for (const TokenId token : tokens) {
    const float* row = weights_.embedding() + index(token) * config_.hidden_size;
    hidden = std::copy(row, row + config_.hidden_size, hidden);
  }
  return {};
}

void LlamaModel::normalise(const float* source, const float* weight, std::size_t rows,
                           Workspace& workspace, Parallel& parallel) const {
  TERRACE_ASSERT(rows <= workspace.rows_max);
  const std::size_t hidden = config_.hidden_size;
  for_each_row(rows, parallel, [&](std::size_t r) {
    rms_norm(source + r * hidden, weight, hidden, config_.rms_norm_epsilon,
             workspace.normed.data() + r * hidden);
  });
}

void LlamaModel::normalise_heads(const LayerWeights& weights, std::size_t row,
                                 Workspace& workspace) const {
  const std::size_t d = config_.head_dim;
  const std::size_t keys_end = config_.query_size() + config_.kv_size();
  float* const heads = workspace.qkv.data() + row * (keys_end + config_.kv_size());
  for (std::size_t i = 0; i < keys_end; i += d) {
    const float* const weight = i < config_.query_size() ? weights.query_norm : weights.key_norm;
    rms_norm(heads + i, weight, d, config_.rms_norm_epsilon, heads + i);
  }
}

void LlamaModel::rotate(const float* head, std::size_t row, const Workspace& workspace,
                        float* target) const {
  const std::size_t rotated = config_.rotated_dims();
  auto* const rotate_part =
      config_.architecture.rotates_neighbours ? rotate_neighbours : rotate_halves;
  rotate_part(head, workspace.angles.cosine(row), workspace.angles.sine(row), rotated / 2, target);
  std::copy(head + rotated, head + config_.head_dim, target + rotated);
}

void LlamaModel::split_row(std::size_t row, const QkvTargets& targets,
                           const Workspace& workspace) const {
  const std::size_t d = config_.head_dim;
  const std::size_t queries = config_.query_size();
  const std::size_t keys = config_.kv_size();
  const float* query = workspace.qkv.data() + row * (queries + 2 * keys);
  const float* key = query + queries;
  const float* value = key + keys;
  for (std::size_t i = 0; i < queries; i += d) {
    rotate(query + i, row, workspace, targets.query + row * queries + i);
  }
  for (std::size_t i = 0; i < keys; i += d) {
    rotate(key + i, row, workspace, targets.key + row * keys + i);
  }
  std::copy(value, value + keys, targets.value + row * keys);
  if (targets.key_pre_rope != nullptr) {
    std::copy(key, key + keys, targets.key_pre_rope + row * keys);
  }
}

void LlamaModel::project_qkv(std::size_t layer, const float* hidden, RowRange rows,
                             const QkvTargets& targets, Workspace& workspace,
                             Parallel& parallel) const {
  const LayerWeights& weights = weights_.layer(layer);
  const std::size_t outputs = config_.query_size() + 2 * config_.kv_size();
  normalise(hidden, weights.input_norm, rows.count, workspace, parallel);
  multiply({.weight = weights.qkv,
            .source = workspace.normed.data(),
            .target = workspace.qkv.data(),
            .rows = rows.count,
            .outputs = outputs,
            .inputs = config_.hidden_size},
           parallel);
  add_bias(weights.qkv_bias, rows.count, outputs, workspace.qkv.data(), parallel);
  workspace.angles.prepare(workspace.rope, rows.first_position, rows.count);
  for_each_row(rows.count, parallel, [&](std::size_t row) {
    if (weights.query_norm != nullptr) normalise_heads(weights, row, workspace);
    split_row(row, targets, workspace);
  });
}

void LlamaModel::finish_layer(std::size_t layer, const float* attention, std::size_t rows,
                              float* hidden, Workspace& workspace, Parallel& parallel) const {
  const LayerWeights& weights = weights_.layer(layer);
  const std::size_t inner = config_.intermediate_size;
  multiply({.weight = weights.attention_out,
            .source = attention,
            .target = hidden,
            .rows = rows,
            .outputs = config_.hidden_size,
            .inputs = config_.query_size(),
            .accumulate = true},
           parallel);
  add_bias(weights.attention_out_bias, rows, config_.hidden_size, hidden, parallel);
  normalise(hidden, weights.attention_norm, rows, workspace, parallel);
  multiply({.weight = weights.gate_up,
            .source = workspace.normed.data(),
            .target = workspace.gate_up.data(),
            .rows = rows,
            .outputs = 2 * inner,
            .inputs = config_.hidden_size},
           parallel);
  add_bias(weights.gate_up_bias, rows, 2 * inner, workspace.gate_up.data(), parallel);
  for_each_row(rows, parallel, [&](std::size_t r) {
    const float* gate = workspace.gate_up.data() + r * 2 * inner;
    swiglu(gate, gate + inner, inner, workspace.activated.data() + r * inner);
  });
  multiply({.weight = weights.down,
            .source = workspace.activated.data(),
            .target = hidden,
            .rows = rows,
            .outputs = config_.hidden_size,
            .inputs = inner,
            .accumulate = true},
           parallel);
  add_bias(weights.down_bias, rows, config_.hidden_size, hidden, parallel);
}

void LlamaModel::logits(const float* hidden, std::size_t rows, float* logits, Workspace& workspace,
                        Parallel& parallel) const {
  normalise(hidden, weights_.final_norm(), rows, workspace, parallel);
  multiply({.weight = weights_.head(),
            .source = workspace.normed.data(),
            .target = logits,
            .rows = rows,
            .outputs = config_.vocabulary,
            .inputs = config_.hidden_size},
           parallel);
}

}  // namespace terrace::engine
