#include "profile_measurement.hpp"

#include "backend_choice.hpp"
#include "program_files.hpp"
#include "terrace/engine/cost_measurement.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::apps {

Result<PlanningFits> measure_planning(const std::string& model_folder, const Config& config) {
  std::filesystem::path folder = model_folder;
  if (folder.empty()) {
    TERRACE_ASSIGN(folder, bundled_model());
  }
  TERRACE_ASSIGN(const auto model, engine::LlamaModel::load(folder));
  const Dtype dtype = *parse_dtype(config.text("kv.dtype"));
  TERRACE_ASSIGN(RuntimeOptions options,
                 RuntimeOptions::from(config, model.config().kv_shape(dtype)));
  TERRACE_ASSIGN(const offload::ChosenBackend chosen, choose_backend(config));
  PlanningFits fits;
  for (const auto& entry : policies::retrieval_policies()) {
    TERRACE_ASSIGN(const auto policy,
                   policies::make_retrieval_policy(entry.name, options.retrieval));
    if (!policy->traits().clusters) continue;
    options.policy = entry.name;
    TERRACE_ASSIGN(
        fits[engine::cost_setting(model.config(), options, policy->traits(), *chosen.backend)],
        engine::measure_costs(model, options, *chosen.backend));
  }
  return fits;
}

}  // namespace terrace::apps
