#include <algorithm>
#include <array>
#include <cmath>

#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/kernels/dense_layer.hpp"
#include "terrace/policies/retention_gates.hpp"

namespace terrace::policies {
namespace {

/// Errors: invalid_argument: the stages' widths do not fit each other.
Status check_widths(std::span<const GateStage> stages) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const GateStage& stage = stages[s];
    if (stage.inputs == 0 || stage.outputs == 0 || stage.outputs > Gates::width_max) {
      return fail(Errc::invalid_argument,
                  "stage {} of the gates has {} inputs and {} outputs; use "
                  "1 to {}",
                  s, stage.inputs, stage.outputs, Gates::width_max);
    }
    if (s > 0 && stage.inputs != stages[s - 1].outputs) {
      return fail(Errc::invalid_argument,
                  "stage {} of the gates has {} inputs, {} outputs come "
                  "from the one before it",
                  s, stage.inputs, stages[s - 1].outputs);
    }
  }
  if (stages.empty() || stages.back().outputs != 1) {
    return fail(Errc::invalid_argument,
                "the gates' last stage has {} outputs; one rating is needed",
                stages.empty() ? 0 : stages.back().outputs);
  }
  return {};
}

/// Errors: invalid_argument: a wrong count of numbers; corrupt: NaN or an infinite number.
Status check_numbers(std::span<const float> numbers, std::size_t wanted, std::size_t of_network,
                     std::size_t kv_heads, std::size_t stage) {
  if (numbers.size() != wanted) {
    return fail(Errc::invalid_argument, "stage {} of the gates has {} numbers where {} are needed",
                stage, numbers.size(), wanted);
  }
  const auto odd = std::ranges::find_if_not(numbers, [](float x) { return std::isfinite(x); });
  if (odd == numbers.end()) return {};
  const std::size_t network = static_cast<std::size_t>(odd - numbers.begin()) / of_network;
  return fail(Errc::corrupt, "the gate of layer {}, KV head {} has the number {} in stage {}",
              network / kv_heads, network % kv_heads, *odd, stage);
}

}  // namespace

Result<Gates> Gates::create(std::size_t layers, std::size_t kv_heads,
                            std::vector<GateStage> stages) {
  if (layers == 0 || kv_heads == 0) {
    return fail(Errc::invalid_argument, "gates of {} layers of {} KV heads rate nothing", layers,
                kv_heads);
  }
  TERRACE_TRY(check_widths(stages));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const GateStage& stage = stages[s];
    const std::size_t networks = layers * kv_heads;
    const std::size_t weights = stage.inputs * stage.outputs;
    TERRACE_TRY(check_numbers(stage.weight, networks * weights, weights, kv_heads, s));
    TERRACE_TRY(check_numbers(stage.bias, networks * stage.outputs, stage.outputs, kv_heads, s));
  }
  return Gates(layers, kv_heads, std::move(stages));
}

Status Gates::check_shape(const KvShape& shape) const {
  const std::size_t head_dim = stages_.front().inputs;
  if (shape.layers == layers_ && shape.kv_heads == kv_heads_ && shape.head_dim == head_dim) {
    return {};
  }
  return fail(Errc::invalid_argument,
              "the gates are for {} layers of {} KV heads of {}, the model has {} of {} of {}",
              layers_, kv_heads_, head_dim, shape.layers, shape.kv_heads, shape.head_dim);
}

void Gates::rate(LayerId layer, std::span<const float> keys, std::span<float> ratings,
                 Parallel& threads) const {
  const std::size_t dims = stages_.front().inputs;
  const std::size_t tokens = ratings.size() / kv_heads_;
  TERRACE_ASSERT(keys.size() == ratings.size() * dims && index(layer) < layers_);
  const std::size_t tiles = divide_up(tokens, tile_tokens);
  threads.for_each(kv_heads_ * tiles, [&](std::size_t part) {
    const std::size_t head = part / tiles;
    const std::size_t first = part % tiles * tile_tokens;
    rate_tile(index(layer) * kv_heads_ + head, keys.data() + (first * kv_heads_ + head) * dims,
              std::min(tile_tokens, tokens - first), ratings.data() + head * tokens + first);
  });
}

/// Between stages the numbers of a tile's tokens lie in the caches that are nearest.
void Gates::rate_tile(std::size_t network, const float* keys, std::size_t tokens,
                      float* ratings) const {
  std::array<std::array<float, tile_tokens * width_max>, 2> between;
  const float* source = keys;
  std::size_t stride = kv_heads_ * stages_.front().inputs;
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const GateStage& stage = stages_[s];
    const bool last = s + 1 == stages_.size();
    float* const target = last ? ratings : between[s % 2].data();
    kernels::host::dense_layer(
        {.source = source,
         .source_stride = stride,
         .weight = stage.weight.data() + network * stage.inputs * stage.outputs,
         .bias = stage.bias.data() + network * stage.outputs,
         .target = target,
         .rows = tokens,
         .inputs = stage.inputs,
         .outputs = stage.outputs,
         .rectify = !last});
    source = target;
    stride = stage.outputs;
  }
}

}  // namespace terrace::policies
