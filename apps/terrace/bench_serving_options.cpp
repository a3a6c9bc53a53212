#include "bench_serving_options.hpp"

#include <algorithm>
#include <charconv>

#include "backend_choice.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::apps {
namespace {

constexpr std::size_t sequences_max = std::size_t{1} << 16;
constexpr std::size_t serving_tokens_max = std::size_t{1} << 30;

}  // namespace

Result<KvShape> model_shape(const ServingBenchOptions& options, const Config& config) {
  return find_shape(options.shape, options.model, *parse_dtype(config.text("kv.dtype")));
}

Result<std::vector<std::size_t>> read_counts(const char* flag, const std::string& list,
                                             std::size_t most) {
  TERRACE_ASSIGN(const std::vector<std::string> numbers, split_names(flag, list));
  std::vector<std::size_t> counts;
  for (const std::string& number : numbers) {
    std::size_t count = 0;
    const char* const end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, count);
    if (read.ec != std::errc{} || read.ptr != end || count == 0 || count > most) {
      return fail(Errc::invalid_argument, "{} {}: give numbers from 1 to {}, as 1,64", flag, list,
                  most);
    }
    if (std::ranges::find(counts, count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

Result<std::vector<std::size_t>> read_sequences(const std::string& list) {
  return read_counts("--sequences", list, sequences_max);
}

Result<std::vector<std::size_t>> read_contexts(const std::string& list) {
  return read_counts("--context", list, serving_tokens_max);
}

Status check_counts(const ServingBenchOptions& options) {
  TERRACE_TRY(check_count("--steps", options.steps, serving_tokens_max));
  return check_count("--prefill-chunk", options.prefill_chunk, serving_tokens_max);
}

Result<bench::ServingPolicy> serving_policy(Config config, const PolicyQuery& query) {
  TERRACE_TRY(config.set("retrieval.policy", query.name, {ConfigOrigin::flag, "--policy"}));
  TERRACE_ASSIGN(RuntimeOptions runtime, RuntimeOptions::from(config, query.shape));
  // A step without an index attends exactly, which is not the work to be measured.
  if (config.is("index.until_ready", "auto")) runtime.until_ready = UntilReady::wait;
  // Memory is reserved by the budget: no more than there will be tokens, with room to decode.
  if (runtime.budget.kind == TokenBudget::Kind::tokens) {
    runtime.budget.value = std::min(runtime.budget.value, static_cast<double>(2 * query.tokens));
  }
  TERRACE_ASSIGN(const auto policy, policies::make_retrieval_policy(query.name, runtime.retrieval));
  TERRACE_ASSIGN(const IndexLayout index, policy->index_layout(query.shape));
  const auto backend = [config, times = query.times]() -> Result<std::unique_ptr<Backend>> {
    TERRACE_ASSIGN(offload::ChosenBackend chosen, choose_backend(config, {.times = times}));
    return std::move(chosen.backend);
  };
  return bench::ServingPolicy{.name = query.name,
                              .options = {.runtime = std::move(runtime), .backend = backend},
                              .builds_index = !index.empty()};
}

bench::Json parameters_of(const ServingBenchOptions& options, const Config& config,
                          const KvShape& shape) {
  return {{"shape", options.shape_name()},
          {"layers", shape.layers},
          {"query_heads", shape.query_heads},
          {"kv_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"dtype", to_string(shape.dtype)},
          {"budget", config.text("retrieval.budget")},
          {"cache", config.text("cache.policy")},
          {"placement", config.text("placement")},
          {"device_threads", config.integer("threads.device")},
          {"host_threads", config.integer("threads.host")}};
}

}  // namespace terrace::apps
