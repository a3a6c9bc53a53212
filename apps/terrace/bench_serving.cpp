#include "bench_serving.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>

#include "backend_choice.hpp"
#include "bench_rows.hpp"
#include "config_check.hpp"
#include "model_shapes.hpp"
#include "output.hpp"
#include "serving/questions.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::apps {
namespace {

constexpr std::array serving_flags{
    KeyFlag{"--policy", "retrieval.policy", "policies to serve with, separated by commas, or all"},
    KeyFlag{"--budget", "retrieval.budget", "tokens attended per step: 0.1, 2048 or mass:0.95"},
    KeyFlag{"--cache", "cache.policy", "replacement policy of the device cache, or none"},
    KeyFlag{"--cache-granularity", "cache.granularity",
            "unit that is cached: block, cluster or row"},
    KeyFlag{"--cache-tokens", "cache.tokens", "cache capacity in tokens per layer, all sequences"},
    KeyFlag{"--backend", "backend", "auto, host or cuda"},
    KeyFlag{"--placement", "placement", "offload or resident_first"},
    KeyFlag{"--device-memory", "device.memory", "limit for KV, index, cache and staging: 8GiB"},
    KeyFlag{"--kv-dtype", "kv.dtype", "element type of stored keys and values: f16, bf16 or f32"},
    KeyFlag{"--link-bandwidth", "link.bandwidth", "imitate a link of this speed: 25GB/s"},
    KeyFlag{"--link-latency", "link.latency", "start-up time of a copy on the imitated link: 10us"},
};

constexpr std::size_t sequences_max = std::size_t{1} << 16;
constexpr std::size_t serving_tokens_max = std::size_t{1} << 30;

struct ServingBenchOptions : BenchOptions {
  std::string shape = named_shapes().front().name;
  std::string model;  ///< folder; empty = the shape
  std::string sequences = "1,64";
  std::size_t layers = 1;
  std::size_t context = 4096;
  std::size_t steps = 64;
  std::size_t prefill_chunk = 512;
};

/// The shape of as many layers as are measured, in the config's dtype.
Result<KvShape> measured_shape(const ServingBenchOptions& options, const Config& config) {
  const Dtype dtype = *parse_dtype(config.text("kv.dtype"));
  TERRACE_ASSIGN(KvShape shape, find_shape(options.shape, options.model, dtype));
  if (options.layers == 0 || options.layers > shape.layers) {
    return fail(Errc::invalid_argument, "--layers {}: the model has {}", options.layers,
                shape.layers);
  }
  shape.layers = options.layers;
  return shape;
}

Status check_counts(const ServingBenchOptions& options) {
  TERRACE_TRY(check_count("--context", options.context, serving_tokens_max));
  TERRACE_TRY(check_count("--steps", options.steps, serving_tokens_max));
  return check_count("--prefill-chunk", options.prefill_chunk, serving_tokens_max);
}

Result<std::vector<std::size_t>> read_sequences(const std::string& list) {
  TERRACE_ASSIGN(const std::vector<std::string> numbers, split_names("--sequences", list));
  std::vector<std::size_t> counts;
  for (const std::string& number : numbers) {
    std::size_t count = 0;
    const char* const end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, count);
    if (read.ec != std::errc{} || read.ptr != end || count == 0 || count > sequences_max) {
      return fail(Errc::invalid_argument, "--sequences {}: give numbers from 1 to {}, as 1,64",
                  list, sequences_max);
    }
    if (std::ranges::find(counts, count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

Result<bench::ServingPolicy> serving_policy(const ServingBenchOptions& options, Config config,
                                            const KvShape& shape, const std::string& name) {
  TERRACE_TRY(config.set("retrieval.policy", name, {ConfigOrigin::flag, "--policy"}));
  TERRACE_ASSIGN(RuntimeOptions runtime, RuntimeOptions::from(config, shape));
  // A step without an index attends exactly, which is not the work to be measured.
  if (config.is("index.until_ready", "auto")) runtime.until_ready = UntilReady::wait;
  // Memory is reserved by the budget: no more than there will be tokens, with room to decode.
  if (runtime.budget.kind == TokenBudget::Kind::tokens) {
    const auto most = static_cast<double>(2 * (options.context + 4 * options.steps));
    runtime.budget.value = std::min(runtime.budget.value, most);
  }
  TERRACE_ASSIGN(const auto policy, policies::make_retrieval_policy(name, runtime.retrieval));
  TERRACE_ASSIGN(const IndexLayout index, policy->index_layout(shape));
  const auto backend = [config]() -> Result<std::unique_ptr<Backend>> {
    TERRACE_ASSIGN(offload::ChosenBackend chosen, choose_backend(config));
    return std::move(chosen.backend);
  };
  return bench::ServingPolicy{.name = name,
                              .options = {.runtime = std::move(runtime), .backend = backend},
                              .builds_index = !index.empty()};
}

bench::Json parameters_of(const ServingBenchOptions& options, const Config& config,
                          const KvShape& shape) {
  return {{"shape", options.model.empty() ? options.shape : options.model},
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

Result<bench::ServingSettings> serving_settings(const ServingBenchOptions& options,
                                                const Config& config, const KvShape& shape) {
  bench::ServingSettings settings{
      .sizes = {.context = options.context,
                .steps = options.steps,
                .prefill_chunk = options.prefill_chunk},
      .threads = config.integer("threads.device") + config.integer("threads.host"),
      .parameters = parameters_of(options, config, shape),
      .quick = options.quick};
  TERRACE_ASSIGN(settings.sequences, read_sequences(options.sequences));
  TERRACE_ASSIGN(const std::vector<std::string> names, policy_names(config));
  for (const std::string& name : names) {
    TERRACE_ASSIGN(settings.policies.emplace_back(), serving_policy(options, config, shape, name));
  }
  return settings;
}

void print_table(const ServingBenchOptions& options, const Machine& machine, const KvShape& shape,
                 std::span<const bench::Row> rows) {
  print_out("machine  {}, {}, {} cores\n", machine.cpu, machine.isa, machine.cores);
  print_out("model    {}: {} query heads, {} KV heads of {}, {}; layers {}{}\n\n{}",
            options.model.empty() ? options.shape : options.model, shape.query_heads,
            shape.kv_heads, shape.head_dim, to_string(shape.dtype), shape.layers,
            quick_note(options.quick), bench::table(rows));
}

Result<int> bench_serving(const ServingBenchOptions& options) {
  TERRACE_ASSIGN(const Config config, bench_config(options));
  TERRACE_TRY(check_counts(options));
  TERRACE_ASSIGN(const KvShape shape, measured_shape(options, config));
  std::string gpu;
  TERRACE_TRY(check_policies(
      config, shape,
      [&](const Config& own) {
        auto chosen = choose_backend(own);
        if (chosen) gpu = chosen->choice.device;
        return chosen;
      },
      [](const Config& /*own*/) -> Result<SharedGates> { return nullptr; }));
  TERRACE_ASSIGN(const bench::ServingSettings settings, serving_settings(options, config, shape));
  std::vector<bench::Question> questions = bench::serving_questions(settings);
  TERRACE_TRY(keep_wanted(options, questions));
  const Machine machine = read_machine(gpu);
  const std::vector<bench::Row> rows = ask_all(questions, options);
  if (options.shared.json()) {
    print_rows_document("bench serving", config, machine, rows);
  } else {
    print_table(options, machine, shape, rows);
  }
  return std::ranges::any_of(rows, &bench::Row::failed) ? 1 : 0;
}

constexpr std::string_view serving_words = R"(Rows:
  prompt                    time of a prompt's token and layer; the prompt comes in pieces
  step                      time of a step, for each sequence and layer
  outside_kernels           share of a step in which the compute queue was idle
  device_bytes              most device memory that steps, arrivals and departures needed
  threads                   of the process, beyond those that the config names
  step_beside_a_piece       a step with a piece of a prompt, over step and piece alone
  step_while_indexing       a step while another sequence's index is built, over one without
  b8, n4096, signs          sequences of a batch, tokens of a prompt, policy
)";

}  // namespace

void add_bench_serving(CLI::App& bench, Invocation& invocation) {
  CLI::App* const serving = bench.add_subcommand(
      "serving", "batches of sequences on a model's shape, with made-up keys and queries");
  const auto options = std::make_shared<ServingBenchOptions>();
  CLI::Option* const shape = serving->add_option(
      "--shape", options->shape, fmt::format("{} [{}]", shape_names(), options->shape));
  shape->option_text("NAME");
  serving->add_option("--model", options->model, "folder whose config.json has the shape")
      ->excludes(shape)
      ->option_text("DIR");
  add_count(*serving, "--layers", options->layers, "layers measured [1]");
  serving->add_option("--sequences", options->sequences, "sizes of batches [1,64]")
      ->option_text("N,...");
  add_count(*serving, "--context", options->context, "tokens of a prompt, in the mean [4096]");
  add_count(*serving, "--steps", options->steps, "steps of a batch without pieces of prompts [64]");
  add_count(*serving, "--prefill-chunk", options->prefill_chunk,
            "tokens of a prompt's piece, which comes in one step [512]");
  add_bench_options(*serving, *options, serving_words);
  add_key_flags(*serving, serving_flags, options->shared);
  serving->callback([options, &invocation] {
    invocation = {[options] { return bench_serving(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
