#include "run/model_notes.hpp"

#include <fmt/core.h>

#include <cstdio>

namespace terrace::apps {

void show_model_notes(const engine::LlamaModel& model, const SharedOptions& options) {
  for (const engine::ModelNote& note : model.notes()) {
    const bool warning = note.level == engine::ModelNote::Level::warning;
    if (warning && !options.quiet) fmt::print(stderr, "terrace: warning: {}\n", note.text);
    if (!warning && options.verbose) fmt::print(stderr, "terrace: {}\n", note.text);
  }
}

}  // namespace terrace::apps
