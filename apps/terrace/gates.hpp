// The gates of a model, for retention policies that rate tokens by them.
#pragma once

#include <filesystem>
#include <memory>

#include "terrace/core/config.hpp"
#include "terrace/policies/retention_gates.hpp"
#include "terrace/runtime/options.hpp"

namespace terrace::apps {

using SharedGates = std::shared_ptr<const policies::Gates>;

/// Whether the policy of `options` rates tokens by gates.
[[nodiscard]] bool needs_gates(const RuntimeOptions& options) noexcept;

/// Reads the gates in the file that retention.gates names or, where that is empty, in
/// gates.safetensors in the model's folder. The whole model is read, to know that they are its own.
/// Errors: those of engine::read_gates(); invalid_argument where there is no such file.
Result<SharedGates> read_gates(const Config& config, const std::filesystem::path& model_folder,
                               const KvShape& shape);

/// Makes gates that rate all tokens alike, for checking what no model is needed for.
Result<SharedGates> make_plain_gates(const KvShape& shape);

}  // namespace terrace::apps
