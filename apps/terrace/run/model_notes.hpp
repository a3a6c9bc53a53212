// Tells the user which parts of a model's files have no effect.
#pragma once

#include "command.hpp"
#include "terrace/engine/llama_model.hpp"

namespace terrace::apps {

/// Writes warnings to standard error unless the user wants quiet, and details where they want more.
void show_model_notes(const engine::LlamaModel& model, const SharedOptions& options);

}  // namespace terrace::apps
