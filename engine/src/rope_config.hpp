// RoPE in a model's config.
#pragma once

#include <string>
#include <vector>

#include "architectures.hpp"
#include "config_fields.hpp"
#include "terrace/engine/model_config.hpp"

namespace terrace::engine {

/// Sets rope_theta, rope_scaling and rotary_dims of `config`, whose sizes must be read already, and
/// adds to `unused` each key of a RoPE object that has no effect.
///
/// Errors   as read_model_config
Status read_rope(const ConfigFields& fields, const ArchitectureRow& row, ModelConfig& config,
                 std::vector<std::string>& unused);

}  // namespace terrace::engine
