// Gates with seeded numbers.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "terrace/core/rng.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/policies/retention_gates.hpp"

namespace terrace {

/// Returns stages with outputs of those widths, their numbers drawn so that each counts.
inline std::vector<policies::GateStage> made_up_stages(const KvShape& shape,
                                                       const std::vector<std::size_t>& widths) {
  Rng rng(shape.layers * 100 + shape.head_dim);
  std::vector<policies::GateStage> stages;
  std::size_t inputs = shape.head_dim;
  for (const std::size_t outputs : widths) {
    policies::GateStage stage{.inputs = inputs, .outputs = outputs};
    const std::size_t networks = shape.layers * shape.kv_heads;
    const double scale = 4 / std::sqrt(static_cast<double>(inputs));
    const auto draw = [&] { return static_cast<float>(scale * (rng.uniform() - 0.5)); };
    for (std::size_t i = 0; i < networks * inputs * outputs; ++i) stage.weight.push_back(draw());
    for (std::size_t i = 0; i < networks * outputs; ++i) stage.bias.push_back(draw());
    stages.push_back(std::move(stage));
    inputs = outputs;
  }
  return stages;
}

inline std::shared_ptr<const policies::Gates> made_up_gates(
    const KvShape& shape, const std::vector<std::size_t>& widths = {6, 1}) {
  return std::make_shared<const policies::Gates>(
      policies::Gates::create(shape.layers, shape.kv_heads, made_up_stages(shape, widths)).value());
}

}  // namespace terrace
