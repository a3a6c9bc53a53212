// Tensors in safetensors files, mapped into memory: one file, or shards named by an index.
//
//   TERRACE_ASSIGN(const Safetensors tensors, Safetensors::open("models/tiny"));
//   TERRACE_ASSIGN(const Tensor norm, tensors.find("model.norm.weight"));
//   const float first = load_f32(norm.bytes.data(), *norm.dtype, 0);
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/dtype.hpp"
#include "terrace/core/result.hpp"
#include "terrace/engine/mapped_file.hpp"

namespace terrace::engine {

/// A tensor inside a file: row-major, little-endian, at any alignment.
struct Tensor {
  std::string_view element_type;  ///< as the format calls it: "F32", "I64", ...
  std::optional<Dtype> dtype;     ///< empty: of a type that Terrace does not compute with
  std::vector<std::size_t> shape;
  std::span<const std::byte> bytes;  ///< product(shape) elements; lives as long as the file
};

using TensorMap = std::map<std::string, Tensor, std::less<>>;

/// Reads the header of a safetensors file and returns views of its tensors.
///
/// Memory   the views point into `file`, which must outlive them
/// Limits   header <= 100 MB
/// Errors   corrupt: file shorter than it says, no JSON, a name twice, an element type that the
///          format does not have, offsets out of order or range, tensors that overlap or leave
///          holes, bytes that do not fit the shape. Each names `label` and, where there is one, the
///          tensor
/// Tests    tests/engine/safetensors_test.cpp, tests/fuzz/
Result<TensorMap> parse_safetensors(std::span<const std::byte> file, std::string_view label);

/// Reads the header's entry about the whole file: its __metadata__, empty if it is missing.
///
/// Errors   corrupt: no header, or it maps other than names to strings. Each names `label`
Result<std::map<std::string, std::string>> parse_safetensors_metadata(
    std::span<const std::byte> file, std::string_view label);

/// Returns a tensor's name for an error line: without line breaks, even if the name has them.
std::string shown_name(std::string_view name);

/// The tensors of a model folder.
class Safetensors {
 public:
  /// Maps `folder`/model.safetensors, or else the shards that model.safetensors.index.json names.
  ///
  /// Errors   io_error: neither is there, a shard is missing; corrupt: a bad file, a bad index, a
  ///          tensor of the index that its shard lacks
  static Result<Safetensors> open(const std::filesystem::path& folder);

  /// Errors   corrupt: no tensor has that name
  [[nodiscard]] Result<Tensor> find(std::string_view name) const;

  [[nodiscard]] const TensorMap& tensors() const noexcept { return tensors_; }

 private:
  Status open_shards(const std::filesystem::path& index_path);

  std::filesystem::path folder_;
  std::vector<MappedFile> files_;
  TensorMap tensors_;
};

}  // namespace terrace::engine
