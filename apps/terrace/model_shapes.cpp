#include "model_shapes.hpp"

#include <algorithm>
#include <array>

#include "program_files.hpp"
#include "terrace/engine/model_config.hpp"

namespace terrace::apps {
namespace {

constexpr std::array shapes{
    NamedShape{"llama-3.1-8b", {.layers = 32, .query_heads = 32, .kv_heads = 8, .head_dim = 128}},
    NamedShape{"llama-3.1-70b", {.layers = 80, .query_heads = 64, .kv_heads = 8, .head_dim = 128}},
    NamedShape{"llama-3.2-1b", {.layers = 16, .query_heads = 32, .kv_heads = 8, .head_dim = 64}},
    NamedShape{"mistral-7b", {.layers = 32, .query_heads = 32, .kv_heads = 8, .head_dim = 128}},
    NamedShape{"qwen2.5-7b", {.layers = 28, .query_heads = 28, .kv_heads = 4, .head_dim = 128}},
    NamedShape{"qwen3-0.6b", {.layers = 28, .query_heads = 16, .kv_heads = 8, .head_dim = 128}},
    NamedShape{"qwen3-32b", {.layers = 64, .query_heads = 64, .kv_heads = 8, .head_dim = 128}},
};

}  // namespace

std::span<const NamedShape> named_shapes() noexcept { return shapes; }

std::string shape_names() {
  std::string names;
  for (const NamedShape& known : shapes) names += std::string(known.name) + ", ";
  return names + bundled_shape;
}

Result<KvShape> find_shape(std::string_view name, const std::string& model_folder, Dtype dtype) {
  if (!model_folder.empty()) return engine::read_kv_shape(model_folder, dtype);
  if (name == bundled_shape) {
    TERRACE_ASSIGN(const std::filesystem::path folder, bundled_model());
    return engine::read_kv_shape(folder, dtype);
  }
  const auto known = std::ranges::find(shapes, name, &NamedShape::name);
  if (known == shapes.end()) {
    return fail(Errc::invalid_argument, "--shape {}: known are {}; --model DIR reads any other",
                name, shape_names());
  }
  KvShape shape = known->shape;
  shape.dtype = dtype;
  return shape;
}

}  // namespace terrace::apps
