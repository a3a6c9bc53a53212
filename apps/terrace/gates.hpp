// The gates of a model, for retention policies that rate tokens by them.
#pragma once

#include <filesystem>

#include "terrace/core/config.hpp"
#include "terrace/runtime/options.hpp"

namespace terrace::apps {

/// Gives `options` the gates that their policy needs, if it needs some: of the file that
/// retention.gates names or, where that is empty, of gates.safetensors in the model's folder.
/// Errors: those of engine::read_gates(); invalid_argument where there is no such file.
Status read_gates(const Config& config, const std::filesystem::path& model_folder,
                  RuntimeOptions& options);

/// Gives `options` gates that rate all tokens alike, for checking what no model is needed for.
Status make_plain_gates(RuntimeOptions& options);

}  // namespace terrace::apps
