// What a model's files say that has no effect, told to the user.
#pragma once

#include "command.hpp"
#include "terrace/engine/llama_model.hpp"

namespace terrace::apps {

/// Writes warnings to standard error unless the user wants quiet, and details where they want more.
void show_model_notes(const engine::LlamaModel& model, const SharedOptions& options);

}  // namespace terrace::apps
