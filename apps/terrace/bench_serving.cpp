#include "bench_serving.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>

#include "backend_choice.hpp"
#include "bench_serving_options.hpp"
#include "config_check.hpp"
#include "output.hpp"

namespace terrace::apps {
namespace {

constexpr std::array serving_flags{
    KeyFlag{"--policy", "retrieval.policy", "policies to serve with, separated by commas, or all"},
    KeyFlag{"--budget", "retrieval.budget", "tokens attended per step: 0.1, 2048 or mass:0.95"},
    KeyFlag{"--cache", "cache.policy", "replacement policy of the device cache, or none"},
    KeyFlag{"--cache-granularity", "cache.granularity", "unit that is cached: block or cluster"},
    KeyFlag{"--cache-tokens", "cache.tokens", "cache capacity in tokens per layer, all sequences"},
    KeyFlag{"--backend", "backend", "auto, host or cuda"},
    KeyFlag{"--placement", "placement", "offload or resident_first"},
    KeyFlag{"--device-memory", "device.memory", "limit for KV, index, cache and staging: 8GiB"},
    KeyFlag{"--kv-dtype", "kv.dtype", "element type of stored keys and values: f16, bf16 or f32"},
    KeyFlag{"--link-bandwidth", "link.bandwidth", "imitate a link of this speed: 25GB/s"},
    KeyFlag{"--link-latency", "link.latency", "start-up time of a copy on the imitated link: 10us"},
};

/// The shape of as many layers as are measured.
Result<KvShape> measured_shape(const ServingBenchOptions& options, const Config& config) {
  TERRACE_ASSIGN(KvShape shape, model_shape(options, config));
  if (options.layers == 0 || options.layers > shape.layers) {
    return fail(Errc::invalid_argument, "--layers {}: the model has {}", options.layers,
                shape.layers);
  }
  shape.layers = options.layers;
  return shape;
}

Result<bench::ServingSettings> serving_settings(const ServingBenchOptions& options,
                                                const Config& config, const KvShape& shape) {
  bench::ServingSettings settings{
      .sizes = {.context = options.context,
                .steps = options.steps,
                .prefill_chunk = options.prefill_chunk,
                .given_prompts = options.prompt == "given"},
      .threads = config.integer("threads.device") + config.integer("threads.host"),
      .parameters = parameters_of(options, config, shape),
      .quick = options.quick};
  TERRACE_ASSIGN(settings.sequences, read_sequences(options.sequences));
  TERRACE_ASSIGN(const std::vector<std::string> names, policy_names(config));
  for (const std::string& name : names) {
    TERRACE_ASSIGN(settings.policies.emplace_back(),
                   serving_policy(config, shape, name, options.context + 4 * options.steps));
  }
  return settings;
}

void print_table(const ServingBenchOptions& options, const Machine& machine, const KvShape& shape,
                 std::span<const bench::Row> rows) {
  print_out("machine  {}, {}, {} cores\n", machine.cpu, machine.isa, machine.cores);
  print_out("model    {}: {} query heads, {} KV heads of {}, {}; layers {}{}\n\n{}",
            options.shape_name(), shape.query_heads, shape.kv_heads, shape.head_dim,
            to_string(shape.dtype), shape.layers, quick_note(options.quick), bench::table(rows));
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
  serving
      ->add_option("--prompt", options->prompt,
                   "computed: pieces attend; given: their rows are stored without attention, so "
                   "that long prompts take seconds [computed]")
      ->check(CLI::IsMember({"computed", "given"}))
      ->option_text("KIND");
  add_bench_options(*serving, *options, serving_words);
  add_key_flags(*serving, serving_flags, options->shared);
  serving->callback([options, &invocation] {
    invocation = {[options] { return bench_serving(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
