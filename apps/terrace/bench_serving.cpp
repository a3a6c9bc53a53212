#include "bench_serving.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>

#include "backend_choice.hpp"
#include "bench_headline.hpp"
#include "bench_serving_options.hpp"
#include "config_check.hpp"
#include "output.hpp"

namespace terrace::apps {
namespace {

constexpr std::size_t default_context = 4096;

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

/// The shape of as many layers as are measured.
Result<KvShape> measured_shape(const ServingBenchOptions& options, const Config& config) {
  TERRACE_ASSIGN(KvShape shape, model_shape(options, config));
  if (options.headline) {
    TERRACE_ASSIGN(shape.layers, headline_layers(options, shape));
    return shape;
  }
  const std::size_t layers = options.layers.value_or(1);
  if (layers == 0 || layers > shape.layers) {
    return fail(Errc::invalid_argument, "--layers {}: the model has {}", layers, shape.layers);
  }
  shape.layers = layers;
  return shape;
}

Result<std::size_t> only_context(const ServingBenchOptions& options) {
  if (options.contexts.empty()) return default_context;
  TERRACE_ASSIGN(const std::vector<std::size_t> contexts, read_contexts(options.contexts));
  if (contexts.size() == 1) return contexts.front();
  return fail(Errc::invalid_argument, "--context {}: --headline alone takes several",
              options.contexts);
}

Result<bench::ServingSettings> serving_settings(const ServingBenchOptions& options,
                                                const Config& config, const KvShape& shape) {
  TERRACE_ASSIGN(const std::size_t context, only_context(options));
  if (options.prefix && config.text("tier.model").empty()) {
    return fail(
        Errc::invalid_argument,
        "--prefix: no prompt is kept; name tier.model, and tier.nvme.path or daemon.socket");
  }
  bench::ServingSettings settings{
      .sizes = {.context = context,
                .steps = options.steps,
                .prefill_chunk = options.prefill_chunk,
                .given_prompts = options.prompt == "given"},
      .threads = config.integer("threads.device") + config.integer("threads.host"),
      .parameters = parameters_of(options, config, shape),
      .prefix = options.prefix,
      .quick = options.quick};
  if (!options.sequences.empty()) {
    TERRACE_ASSIGN(settings.sequences, read_sequences(options.sequences));
  }
  TERRACE_ASSIGN(const std::vector<std::string> names, policy_names(config));
  for (const std::string& name : names) {
    TERRACE_ASSIGN(
        settings.policies.emplace_back(),
        serving_policy(config,
                       {.shape = shape, .name = name, .tokens = context + 4 * options.steps}));
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

/// Checks all policies on the backend that is measured.
Result<MeasuredBackend> find_measured_backend(const Config& config, const KvShape& shape) {
  MeasuredBackend measured;
  TERRACE_TRY(check_policies(
      config, shape,
      [&](const Config& own) {
        auto chosen = choose_backend(own);
        if (chosen) {
          measured = {chosen->choice.device, chosen->backend->memory(Tier::host).limit};
        }
        return chosen;
      },
      [](const Config& /*own*/) -> Result<SharedGates> { return nullptr; }));
  return measured;
}

struct Rows {
  Machine machine;
  KvShape shape;
  std::vector<bench::Row> rows;
};

int print(const ServingBenchOptions& options, const Config& config, const Rows& asked) {
  if (options.shared.json()) {
    print_rows_document("bench serving", config, asked.machine, asked.rows);
  } else {
    print_table(options, asked.machine, asked.shape, asked.rows);
  }
  return std::ranges::any_of(asked.rows, &bench::Row::failed) ? 1 : 0;
}

Result<Rows> ask_headline(const ServingBenchOptions& options, const Config& config) {
  TERRACE_ASSIGN(const KvShape shape, measured_shape(options, config));
  TERRACE_ASSIGN(const MeasuredBackend backend, find_measured_backend(config, shape));
  TERRACE_ASSIGN(bench::HeadlineSettings settings,
                 headline_settings(options, config, shape, backend));
  Progress progress(options.shared.quiet);
  settings.say = [&](const std::string& words) { progress.show_stage(words); };
  std::vector<bench::Question> questions = bench::headline_questions(settings);
  TERRACE_TRY(keep_wanted(options, questions));
  return Rows{read_machine(backend.device), shape, ask_all(questions, options, progress)};
}

Result<Rows> ask_serving(const ServingBenchOptions& options, const Config& config) {
  TERRACE_ASSIGN(const KvShape shape, measured_shape(options, config));
  TERRACE_ASSIGN(const MeasuredBackend backend, find_measured_backend(config, shape));
  TERRACE_ASSIGN(const bench::ServingSettings settings, serving_settings(options, config, shape));
  std::vector<bench::Question> questions = bench::serving_questions(settings);
  TERRACE_TRY(keep_wanted(options, questions));
  return Rows{read_machine(backend.device), shape, ask_all(questions, options)};
}

Result<int> bench_serving(const ServingBenchOptions& options) {
  TERRACE_ASSIGN(Config config, bench_config(options));
  TERRACE_TRY(check_counts(options));
  if (options.headline) config = headline_config(std::move(config));
  TERRACE_ASSIGN(const Rows asked,
                 options.headline ? ask_headline(options, config) : ask_serving(options, config));
  return print(options, config, asked);
}

constexpr std::string_view serving_words = R"(Rows:
  prompt                    time of a prompt's token and layer; the prompt comes in pieces
  step                      time of a step, for each sequence and layer
  outside_kernels           share of a step in which the compute queue was idle
  device_bytes              most device memory that steps, arrivals and departures needed
  threads                   of the process, beyond those that the config names
  step_beside_a_piece       a step with a piece of a prompt, over step and piece alone
  step_while_indexing       a step while another sequence's index is built, over one without
  question_behind_prefix    with --prefix: time to the first token behind a prompt that is stored
  b8, n4096, signs          sequences of a batch, tokens of a prompt, policy
Rows of --headline:
  fits                      sequences that --model-device-memory has room for
  step                      time of a step, for each sequence and layer
  step_fixed                time of a step that does not grow with its layers
  step_marginal             time that a layer adds to a step of the batch
  cpu                       processor time of the calling thread for a layer of a step
  hit_rate                  share of the wanted rows that were in the cache
  link_bytes                over the link, for each token and layer
  device_bytes              most device memory of steps, for each sequence
  ttft                      time to the first token of a prompt that is given
  tokens_per_second         of as many sequences as fit; the peer is policy full
  full, pqcache, signs      policies compared where --policy names no others
)";

void add_headline_options(CLI::App& serving, ServingBenchOptions& options) {
  CLI::Option* const headline = serving.add_flag(
      "--headline", options.headline, "tokens a second at equal device memory, policy by policy");
  serving
      .add_option("--model-device-memory", options.model_device_memory,
                  "what the model's device has for the KV cache [64GB]")
      ->needs(headline)
      ->option_text("SIZE");
  add_count(serving, "--model-layers", options.model_layers, "layers of the model [the shape's]")
      ->needs(headline);
}

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
  serving->add_option("--layers", options->layers, "layers measured [1; with --headline 4]")
      ->option_text("N");
  serving
      ->add_option("--sequences,--batches", options->sequences,
                   "sizes of batches [1,64; with --headline 1,16,64]")
      ->option_text("N,...");
  serving
      ->add_option("--context", options->contexts,
                   "tokens of a prompt, in the mean [4096; with --headline on a GPU 32768,131072]")
      ->option_text("N");
  add_count(*serving, "--steps", options->steps, "steps of a batch without pieces of prompts [64]");
  serving->add_flag(
      "--prefix", options->prefix,
      "also a question behind a prompt that is kept: writes to the tier for prefixes");
  add_count(*serving, "--prefill-chunk", options->prefill_chunk,
            "tokens of a prompt's piece, which comes in one step [512]");
  serving
      ->add_option("--prompt", options->prompt,
                   "computed: pieces attend; given: their rows are stored without attention, so "
                   "that long prompts take seconds [computed; with --headline given]")
      ->check(CLI::IsMember({"computed", "given"}))
      ->option_text("KIND");
  add_headline_options(*serving, *options);
  add_bench_options(*serving, *options, serving_words);
  add_key_flags(*serving, serving_flags, options->shared);
  serving->callback([options, &invocation] {
    invocation = {[options] { return bench_serving(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
