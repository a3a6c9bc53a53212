// Gates: small networks, one for each layer and KV head, that say from a token's key how long the
// token will be looked at.
//
//   auto gates = std::make_shared<const Gates>(*Gates::create(4, 2, std::move(stages)));
//   auto policy = make_retention_policy("smartkv", {.gates = gates});
//
// `terrace/engine/gates.hpp` reads them from a file, tools/train_gates.py trains them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "terrace/core/ids.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/shape.hpp"

namespace terrace::policies {

/// A stage of all networks: weighted sums of its inputs and, but for the last stage, a ReLU.
struct GateStage {
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  std::vector<float> weight = {};  ///< [layers, kv_heads, inputs, outputs]
  std::vector<float> bias = {};    ///< [layers, kv_heads, outputs]
};

/// Threads  any, at once
class Gates {
 public:
  static constexpr std::size_t width_max = 512;  ///< outputs of a stage

  /// Makes networks of stages with consistent sizes, the last with one output.
  ///
  /// Errors   invalid_argument naming the stage and what does not fit; corrupt: an infinite number
  ///          or NaN, with its layer and KV head
  static Result<Gates> create(std::size_t layers, std::size_t kv_heads,
                              std::vector<GateStage> stages);

  /// Errors: invalid_argument: the model has other layers, KV heads or heads of another size.
  [[nodiscard]] Status check_shape(const KvShape& shape) const;

  /// Writes for each key the base-4 logarithm of the lifespan that its network predicts.
  ///
  /// Shapes   keys [tokens, kv_heads, head_dim], before RoPE; ratings [kv_heads, tokens]
  /// Threads  parts of tile_tokens tokens of a KV head; bits depend neither on threads nor on the
  ///          other tokens; allocates nothing
  /// Tests    tests/policies/retention_gates_test.cpp
  void rate(LayerId layer, std::span<const float> keys, std::span<float> ratings,
            Parallel& threads) const;

 private:
  static constexpr std::size_t tile_tokens = 32;

  Gates(std::size_t layers, std::size_t kv_heads, std::vector<GateStage> stages)
      : layers_(layers), kv_heads_(kv_heads), stages_(std::move(stages)) {}

  void rate_tile(std::size_t network, const float* keys, std::size_t tokens, float* ratings) const;

  std::size_t layers_;
  std::size_t kv_heads_;
  std::vector<GateStage> stages_;
};

}  // namespace terrace::policies
