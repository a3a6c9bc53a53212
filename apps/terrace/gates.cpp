#include "gates.hpp"

#include "terrace/engine/gates.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::apps {

bool needs_gates(const RuntimeOptions& options) noexcept {
  return options.retention_policy == "smartkv" && options.own_retention == nullptr;
}

Result<SharedGates> read_gates(const Config& config, const std::filesystem::path& model_folder,
                               const KvShape& shape) {
  std::filesystem::path path = config.text("retention.gates");
  if (path.empty()) path = model_folder / "gates.safetensors";
  std::error_code none;
  if (!std::filesystem::exists(path, none)) {
    return fail(Errc::invalid_argument,
                "retention.gates: {} is not there; tools/train_gates.py trains gates for a model",
                path.string());
  }
  TERRACE_ASSIGN(const std::string model, tuning::model_fingerprint(model_folder));
  TERRACE_ASSIGN(policies::Gates gates, engine::read_gates(path, shape, model));
  return std::make_shared<const policies::Gates>(std::move(gates));
}

Result<SharedGates> make_plain_gates(const KvShape& shape) {
  policies::GateStage stage{.inputs = shape.head_dim, .outputs = 1};
  stage.weight.resize(shape.layers * shape.kv_heads * shape.head_dim);
  stage.bias.resize(shape.layers * shape.kv_heads);
  TERRACE_ASSIGN(policies::Gates gates,
                 policies::Gates::create(shape.layers, shape.kv_heads, {std::move(stage)}));
  return std::make_shared<const policies::Gates>(std::move(gates));
}

}  // namespace terrace::apps
