// Keys that a model's config may have beside the numbers that are read from it.
#pragma once

#include <string>
#include <vector>

#include "architectures.hpp"
#include "config_fields.hpp"
#include "terrace/engine/model_config.hpp"

namespace terrace::engine {

/// Adds to `unused` each key that is neither read nor known to change no result. Sizes of `config`
/// must be read already.
///
/// Errors   unsupported: a key asks for what a Llama model does not compute
Status check_keys(const ConfigFields& fields, const ArchitectureRow& row, const ModelConfig& config,
                  std::vector<std::string>& unused);

}  // namespace terrace::engine
