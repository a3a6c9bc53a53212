// Logits that PyTorch computed (golden/ORIGIN.md), and how far others are from them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/temporary_folder.hpp"
#include "terrace/core/dtype.hpp"
#include "terrace/core/ids.hpp"
#include "terrace/engine/llama_model.hpp"
#include "terrace/engine/mapped_file.hpp"
#include "terrace/engine/safetensors.hpp"

namespace terrace::engine {

// f32 throughout on both sides: only the order of additions differs. Ten times what was seen.
inline constexpr double f32_tolerance = 4e-4;

/// Returns the folder of test data: in the repository, or in the place that a bundle names.
inline std::string data_folder(const char* variable, const char* in_repository) {
  const char* const bundled = std::getenv(variable);
  return bundled != nullptr ? bundled : in_repository;
}
inline std::string golden_folder() {
  return data_folder("TERRACE_TEST_GOLDEN", TERRACE_GOLDEN_FOLDER);
}
inline std::string tiny_model() { return data_folder("TERRACE_TEST_MODEL", TERRACE_TINY_MODEL); }

inline std::vector<nlohmann::json> cases_of(const std::string& file) {
  std::ifstream stream(golden_folder() + "/" + file);
  return nlohmann::json::parse(stream).at("cases").get<std::vector<nlohmann::json>>();
}

inline std::vector<TokenId> tokens_of(const nlohmann::json& golden) {
  std::vector<TokenId> tokens;
  for (const auto& token : golden.at("tokens")) tokens.push_back(TokenId(token.get<unsigned>()));
  return tokens;
}

inline double distance(std::span<const float> logits, const nlohmann::json& expected) {
  double largest = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    largest = std::max(largest, std::abs(logits[i] - expected.at(i).get<double>()));
  }
  return largest;
}

/// Loads the model of variant_logits.json as a case of it changes its config.
inline Result<LlamaModel> load_variant(const nlohmann::json& golden) {
  const std::filesystem::path source = golden_folder() + "/variant_model";
  std::ifstream stream(source / "config.json");
  nlohmann::json config = nlohmann::json::parse(stream);
  config.erase("rope_parameters");
  config.update(golden.at("config"));
  const TemporaryFolder folder;
  std::filesystem::copy(source / "model.safetensors", folder.path());
  folder.write("config.json", config.dump());
  return LlamaModel::load(folder.path());
}

/// Loads the model of a case of architecture_logits.json.
inline Result<LlamaModel> load_architecture(const nlohmann::json& golden) {
  return LlamaModel::load(golden_folder() + "/architectures/" +
                          golden.at("model").get<std::string>());
}

/// Copies the bundled model and sets the first elements of one F16 tensor, or all of them.
inline void copy_with_changed_weights(const TemporaryFolder& folder, const char* name, float value,
                                      std::size_t count = SIZE_MAX) {
  const std::filesystem::path tiny = tiny_model();
  std::filesystem::copy(tiny / "config.json", folder.path());
  const MappedFile file = MappedFile::open(tiny / "model.safetensors").value();
  const Tensor tensor = parse_safetensors(file.bytes(), "tiny").value().at(name);
  const auto* bytes = reinterpret_cast<const char*>(file.bytes().data());
  std::string changed(bytes, file.bytes().size());
  char* const first = changed.data() + (tensor.bytes.data() - file.bytes().data());
  const std::size_t elements = tensor.bytes.size() / size_bytes(*tensor.dtype);
  for (std::size_t i = 0; i < std::min(count, elements); ++i) {
    store_f32(first, *tensor.dtype, i, value);
  }
  folder.write("model.safetensors", changed);
}

/// Copies the folder with the first element of a tensor changed.
inline void copy_with_changed_weight(const TemporaryFolder& folder, const char* name, float value) {
  copy_with_changed_weights(folder, name, value, 1);
}

/// The bundled model with all weights of one tensor set to `weight`.
inline LlamaModel model_with(const char* tensor, float weight) {
  const TemporaryFolder folder;
  copy_with_changed_weights(folder, tensor, weight);
  return LlamaModel::load(folder.path()).value();
}

}  // namespace terrace::engine
