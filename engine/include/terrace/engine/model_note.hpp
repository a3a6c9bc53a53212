// Remarks on a model's files for the user, though the model runs. The library prints nothing.
#pragma once

#include <string>

namespace terrace::engine {

struct ModelNote {
  /// A detail changes no result. A warning may: something in the files has no effect.
  enum class Level : unsigned char { detail, warning };

  Level level = Level::warning;
  std::string text;  ///< one line that names the file and what is in it

  bool operator==(const ModelNote&) const = default;
};

}  // namespace terrace::engine
