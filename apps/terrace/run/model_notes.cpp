#include "run/model_notes.hpp"

#include "output.hpp"

namespace terrace::apps {

void show_model_notes(const engine::LlamaModel& model, const SharedOptions& options) {
  for (const engine::ModelNote& note : model.notes()) {
    const bool warning = note.level == engine::ModelNote::Level::warning;
    if (warning && !options.quiet) warn("{}", note.text);
    if (!warning && options.verbose) say("{}", note.text);
  }
}

}  // namespace terrace::apps
