#include "terrace/engine/gates.hpp"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "terrace/core/bytes.hpp"
#include "terrace/engine/safetensors.hpp"
#include "terrace/engine/vector_math.hpp"

namespace terrace::engine {
namespace {

constexpr std::string_view format = "terrace gates 1";

using policies::Gates;
using policies::GateStage;

std::string name_of(std::size_t layer, std::size_t stage, std::string_view part) {
  return fmt::format("layers.{}.{}.{}", layer, stage, part);
}

/// Errors: unsupported: no gates, or of another format; invalid_argument: of another model.
Status check_metadata(const std::map<std::string, std::string>& metadata,
                      std::string_view fingerprint) {
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (text("format") != format) {
    return fail(Errc::unsupported, "holds no gates that tools/train_gates.py wrote (\"{}\")",
                format);
  }
  if (text("model_fingerprint") != fingerprint) {
    return fail(Errc::invalid_argument,
                "gates of another model ({}, fingerprint {}; this one has {}): train some with "
                "tools/train_gates.py",
                shown_name(text("model")), shown_name(text("model_fingerprint")), fingerprint);
  }
  return {};
}

/// Errors: corrupt: it is missing; invalid_argument: of another shape; unsupported: element type.
Result<Tensor> find(const TensorMap& tensors, const std::string& name,
                    const std::vector<std::size_t>& shape) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) return fail(Errc::corrupt, "has no tensor {}", name);
  const Tensor& tensor = found->second;
  if (tensor.shape != shape) {
    return fail(Errc::invalid_argument, "tensor {} has shape {}, {} is needed", name, tensor.shape,
                shape);
  }
  if (!tensor.dtype) {
    return fail(Errc::unsupported, "tensor {} is {}; F32, F16 and BF16 are supported", name,
                tensor.element_type);
  }
  return tensor;
}

/// Returns the sizes of all stages, from the first layer's tensors. Stages are counted until no
/// tensor is left over.
Result<std::vector<GateStage>> read_sizes(const TensorMap& tensors, const KvShape& shape) {
  const std::size_t count = divide_up(tensors.size(), 2 * shape.layers);
  std::vector<GateStage> stages;
  std::size_t inputs = shape.head_dim;
  for (std::size_t s = 0; s < count; ++s) {
    const std::string name = name_of(0, s, "weight");
    const auto found = tensors.find(name);
    if (found == tensors.end()) return fail(Errc::corrupt, "has no tensor {}", name);
    const std::vector<std::size_t>& sizes = found->second.shape;
    if (sizes.size() != 3) {
      return fail(Errc::invalid_argument, "tensor {} has shape {}, [{}, outputs, {}] is needed",
                  name, sizes, shape.kv_heads, inputs);
    }
    stages.push_back({.inputs = inputs, .outputs = sizes[1]});
    inputs = sizes[1];
  }
  return stages;
}

/// Appends weights [kv_heads, outputs, inputs] as [kv_heads, inputs, outputs].
void append_transposed(const Tensor& tensor, std::vector<float>& weights) {
  const std::size_t outputs = tensor.shape[1];
  const std::size_t inputs = tensor.shape[2];
  std::vector<float> values(tensor.shape[0] * outputs * inputs);
  convert_to_f32(tensor.bytes.data(), *tensor.dtype, values.size(), values.data());
  for (std::size_t first = 0; first < values.size(); first += outputs * inputs) {
    for (std::size_t i = 0; i < inputs; ++i) {
      for (std::size_t o = 0; o < outputs; ++o) {
        weights.push_back(values[first + o * inputs + i]);
      }
    }
  }
}

void append(const Tensor& tensor, std::vector<float>& values) {
  const std::size_t before = values.size();
  values.resize(before + tensor.shape[0] * tensor.shape[1]);
  convert_to_f32(tensor.bytes.data(), *tensor.dtype, values.size() - before,
                 values.data() + before);
}

/// Errors: those of find and of Gates::create.
Result<Gates> read_networks(const TensorMap& tensors, const KvShape& shape) {
  TERRACE_ASSIGN(std::vector<GateStage> stages, read_sizes(tensors, shape));
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    for (std::size_t s = 0; s < stages.size(); ++s) {
      GateStage& stage = stages[s];
      TERRACE_ASSIGN(const Tensor weight, find(tensors, name_of(layer, s, "weight"),
                                               {shape.kv_heads, stage.outputs, stage.inputs}));
      append_transposed(weight, stage.weight);
      TERRACE_ASSIGN(const Tensor bias,
                     find(tensors, name_of(layer, s, "bias"), {shape.kv_heads, stage.outputs}));
      append(bias, stage.bias);
    }
  }
  return Gates::create(shape.layers, shape.kv_heads, std::move(stages));
}

}  // namespace

Result<Gates> read_gates(const std::filesystem::path& path, const KvShape& shape,
                         std::string_view model_fingerprint) {
  TERRACE_ASSIGN(const MappedFile file, MappedFile::open(path));
  const std::string label = path.string();
  TERRACE_ASSIGN(const TensorMap tensors, parse_safetensors(file.bytes(), label));
  TERRACE_ASSIGN(const auto metadata, parse_safetensors_metadata(file.bytes(), label));
  return check_metadata(metadata, model_fingerprint)
      .and_then([&] { return read_networks(tensors, shape); })
      .map_error([&](const Error& error) { return error.while_doing(label); });
}

}  // namespace terrace::engine
