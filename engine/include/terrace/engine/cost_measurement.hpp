// Measures what the planner of iteration limits needs to know of this machine and model.
#pragma once

#include <string>

#include "terrace/core/backend.hpp"
#include "terrace/engine/llama_model.hpp"
#include "terrace/policies/iteration_planner.hpp"
#include "terrace/runtime/options.hpp"

namespace terrace::engine {

/// Runs short prefills and clusterings and fits T_compute, T_offload and T_kmeans to their times.
///
/// Takes some seconds: prefills of 512 to 2048 tokens (how one layer's time grows with the length),
/// copies of their rows, and clusterings of 2048 to 16384 rows with 3 and 9 iterations; more of
/// each than a fit has coefficients, so that residuals say something.
///
/// Units    seconds for one layer
/// Errors   unsupported: the policy does not cluster; the runtime's own
Result<policies::CostModel> measure_costs(const LlamaModel& model, const RuntimeOptions& options,
                                          Backend& backend);

/// Names all that the costs depend on beside the CPU: the policy and its index, the sizes of the
/// model's layers, dtype, threads, and the level of instructions in use. Costs of one setting say
/// nothing about another.
std::string cost_setting(const ModelConfig& model, const RuntimeOptions& options,
                         const RetrievalTraits& policy, Backend& backend);

}  // namespace terrace::engine
