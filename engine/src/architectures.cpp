#include "architectures.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace terrace::engine {
namespace {

using nlohmann::json;

constexpr std::array rows{
    ArchitectureRow{.architecture = {}, .biases = BiasKey::qkv_and_out, .has_mlp_biases = true},
    ArchitectureRow{.architecture = {.name = "MistralForCausalLM", .model_type = "mistral"},
                    .kv_heads_default = 8,
                    .positions_default = 131072,
                    .window = {.tokens = 4096, .has_switch = false}},
    ArchitectureRow{.architecture = {.name = "Qwen2ForCausalLM", .model_type = "qwen2"},
                    .biases = BiasKey::qkv_always,
                    .kv_heads_default = 32,
                    .positions_default = 32768,
                    .window = {.tokens = 4096, .is_on = false}},
    ArchitectureRow{
        .architecture = {.name = "Qwen3ForCausalLM", .model_type = "qwen3", .norms_heads = true},
        .biases = BiasKey::qkv_and_out,
        .head_dim_default = 128,
        .kv_heads_default = 32,
        .positions_default = 32768,
        .window = {.tokens = 4096, .is_on = false}},
    ArchitectureRow{.architecture = {.name = "Phi3ForCausalLM",
                                     .model_type = "phi3",
                                     .fuses_qkv = true,
                                     .fuses_gate_up = true},
                    .rotates_parts = true,
                    .positions_default = 4096,
                    .original_positions_default = 4096,
                    .scales_by_longrope = true,
                    .epsilon_default = 1e-5,
                    .window = {.has_switch = false}},
    // GLM-4 9B; those of 2025 have norms after attention, and another name.
    ArchitectureRow{.architecture = {.name = "GlmForCausalLM",
                                     .model_type = "glm",
                                     .fuses_gate_up = true,
                                     .rotates_neighbours = true},
                    .biases = BiasKey::qkv,
                    .bias_default = true,
                    .rotates_parts = true,
                    .rotated_default = 0.5,
                    .head_dim_default = 128,
                    .kv_heads_default = 2,
                    .positions_default = 131072,
                    .epsilon_default = 1.5625e-7},
};

std::string names() {
  std::vector<std::string_view> all;
  all.reserve(std::size(rows));
  for (const ArchitectureRow& row : rows) all.push_back(row.architecture.name);
  return fmt::format("{}", fmt::join(all, ", "));
}

const ArchitectureRow* find(std::string_view Architecture::* by, std::string_view name) {
  const auto* const found = std::ranges::find_if(
      rows, [&](const ArchitectureRow& row) { return row.architecture.*by == name; });
  return found == rows.end() ? nullptr : found;
}

}  // namespace

Result<const ArchitectureRow*> find_architecture(const ConfigFields& fields) {
  const json* const named = fields.find("architectures");
  if (named == nullptr) {
    TERRACE_ASSIGN(const std::string type, fields.text("model_type", ""));
    if (const auto* row = find(&Architecture::model_type, type)) return row;
    return fail(Errc::unsupported,
                "{}: names no architecture; \"architectures\": [\"{}\"] is needed", fields.file(),
                rows.front().architecture.name);
  }
  if (named->is_array() && named->size() == 1 && named->front().is_string()) {
    const auto name = named->front().get<std::string>();
    if (const auto* row = find(&Architecture::name, name)) return row;
  }
  return fail(Errc::unsupported, "{}: architectures is {}; one of {} is supported", fields.file(),
              ConfigFields::shown(*named), names());
}

}  // namespace terrace::engine
