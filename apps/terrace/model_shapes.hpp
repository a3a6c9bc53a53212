// Shapes of models by name, for commands that need no weights.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/core/shape.hpp"

namespace terrace::apps {

struct NamedShape {
  const char* name;
  KvShape shape;
};

/// Shapes of models that need not be here.
std::span<const NamedShape> named_shapes() noexcept;

/// The name of the bundled model's shape.
inline constexpr const char* bundled_shape = "tiny";

/// Returns the names that find_shape() knows, with commas between.
std::string shape_names();

/// Returns the shape of the model in a folder or, where no folder is named, the one of a name, in
/// `dtype`.
///
/// Errors   invalid_argument: an unknown name, with those that are known; no model there
Result<KvShape> find_shape(std::string_view name, const std::string& model_folder, Dtype dtype);

}  // namespace terrace::apps
