// Handles described as JSON: docs/embedding-c.md has the fields.
#pragma once

#include <string>

#include "terrace/core/config.hpp"
#include "terrace/offload/registry.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::bindings {

[[nodiscard]] std::string keys_as_json(const Config& config);
[[nodiscard]] std::string traits_as_json(Runtime& runtime, const offload::BackendChoice& backend);
[[nodiscard]] std::string counters_as_json(const Sequence& sequence);

}  // namespace terrace::bindings
