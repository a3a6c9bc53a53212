// `terrace bench`: measures this machine, one figure per row.

#include <algorithm>
#include <array>
#include <memory>

#include "backend_choice.hpp"
#include "bench_nvme.hpp"
#include "bench_pcie.hpp"
#include "bench_rows.hpp"
#include "bench_serving.hpp"
#include "cache/questions.hpp"
#include "device_ops/questions.hpp"
#include "kernels/questions.hpp"
#include "output.hpp"
#include "profile_file.hpp"
#include "profile_measurement.hpp"
#include "profile_report.hpp"
#include "quality/benches.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::apps {
namespace {

struct KernelsOptions : BenchOptions {
  std::string model;  ///< model of the profile's fits; empty = the bundled one
};

constexpr std::array kernels_flags{
    KeyFlag{"--backend", "backend", "ops of backend cuda or host, in place of the host's kernels"},
};

constexpr std::array cache_flags{
    KeyFlag{"--cache-tokens", "cache.tokens",
            "hit rates of a cache of so many tokens per layer [what steps want and select]"},
};

struct CacheBenchOptions : BenchOptions {
  std::string trace;  ///< empty = made up
  std::string model;  ///< empty = not compared
};

Status write_profile(const KernelsOptions& options, const Config& config, const Machine& machine,
                     std::span<const bench::Row> rows) {
  TERRACE_ASSIGN(const auto fits, measure_planning(options.model, config));
  warn_of_quick_profile(options, "kernels'");
  for (const auto& [setting, costs] : fits) {
    warn_of_loose_fits(setting, costs, options.shared.quiet || options.quick);
  }
  return extend_profile(options.profile_file, machine, config.duration("deadline"),
                        [&](MachineProfile& profile) {
                          for (const bench::Row& row : rows) {
                            if (row.value && row.unit == "B/s") profile.host[row.name] = *row.value;
                          }
                          for (const auto& [setting, costs] : fits)
                            profile.compute[setting] = costs;
                        });
}

/// Prints the rows; the exit status says whether each has a figure.
int print_rows(const char* command, const BenchOptions& options, const Config& config,
               const Machine& machine, std::span<const bench::Row> rows) {
  if (options.shared.json()) {
    print_rows_document(command, config, machine, rows);
  } else {
    print_out("machine  {}, {}, {} cores; one thread where no name says otherwise{}\n\n{}",
              machine.cpu, machine.isa, machine.cores, quick_note(options.quick),
              bench::table(rows));
  }
  const bool answered =
      std::ranges::all_of(rows, [](const bench::Row& row) { return row.value.has_value(); });
  return answered ? 0 : 1;
}

/// Measures the ops of the backend that was asked for.
Result<int> bench_ops(const KernelsOptions& options, const Config& config) {
  if (!options.profile_file.empty()) {
    return fail(Errc::invalid_argument,
                "--write-profile: a profile has the host's kernels; leave --backend out");
  }
  TERRACE_ASSIGN(const offload::BackendChoice chosen, find_backend(config));
  // Times would put an event between ops.
  const auto make = [&]() -> Result<std::unique_ptr<Backend>> {
    TERRACE_ASSIGN(offload::ChosenBackend backend, choose_backend(config, {.times = false}));
    return std::move(backend.backend);
  };
  std::vector<bench::Question> questions =
      bench::device_op_questions({.make = make, .patience = config.duration("deadline")});
  TERRACE_TRY(keep_wanted(options, questions));
  const std::vector<bench::Row> rows = ask_all(questions, options);
  if (!options.shared.json()) print_out("backend  {}\n", describe(chosen));
  return print_rows("bench kernels", options, config, read_machine(chosen.device), rows);
}

Result<int> bench_kernels(const KernelsOptions& options) {
  if (!options.model.empty() && options.profile_file.empty()) {
    return fail(Errc::invalid_argument,
                "--model goes with --write-profile: it says whose layers hide the clustering");
  }
  TERRACE_ASSIGN(const Config config, bench_config(options));
  TERRACE_TRY(check_targets({{"--write-profile", options.profile_file}},
                            {{"--config", options.shared.config_file}}));
  const bool of_ops = std::ranges::any_of(
      options.shared.flag_values, [](const FlagValue& given) { return given.key == "backend"; });
  if (of_ops) return bench_ops(options, config);
  std::vector<bench::Question> questions = bench::kernel_questions();
  TERRACE_TRY(keep_wanted(options, questions));
  const Machine machine = read_machine();
  // Read first, because a file that is no profile is refused, and measuring takes long.
  if (!options.profile_file.empty()) {
    TERRACE_TRY(profile_to_extend(options.profile_file, machine));
  }
  const std::vector<bench::Row> rows = ask_all(questions, options);
  const int status = print_rows("bench kernels", options, config, machine, rows);
  if (!options.profile_file.empty()) TERRACE_TRY(write_profile(options, config, machine, rows));
  return status;
}

/// The capacity that the user asked for; 0 if the user named no capacity.
Result<std::size_t> asked_capacity(const Config& config, const bench::Trace& trace) {
  const tuning::CacheUnit unit = trace.head.recorded();
  const auto asked = config.integer_or_auto("cache.tokens");
  if (asked == 0) {
    return fail(
        Errc::invalid_argument,
        "cache.tokens 0 is no cache: name a size, or leave the key out for one and two budgets");
  }
  const CacheOptions cache{.granularity = unit.granularity, .tokens = asked.value_or(0)};
  const auto reason = why_no_slot(cache, {.slot_tokens = trace.head.slot_tokens(unit)});
  if (reason) return fail(Errc::invalid_argument, "{}", *reason);
  return cache.tokens;
}

Status check_model(const CacheBenchOptions& options) {
  if (options.model.empty()) return {};
  if (options.trace.empty()) {
    return fail(Errc::invalid_argument, "--model goes with --trace: made up selections have none");
  }
  TERRACE_ASSIGN(const auto reader, tuning::TraceReader::open(options.trace));
  return tuning::check_model(reader.head(), options.model);
}

Result<int> bench_cache(const CacheBenchOptions& options) {
  TERRACE_ASSIGN(const Config config, bench_config(options));
  TERRACE_TRY(check_model(options));
  std::vector<bench::Question> questions = bench::touch_questions();
  const auto states = bench::state_questions();
  questions.insert(questions.end(), states.begin(), states.end());
  TERRACE_ASSIGN(const auto trace, bench::load_trace(options.trace, options.quick));
  TERRACE_ASSIGN(const auto replays, bench::replay_questions(trace));
  questions.insert(questions.end(), replays.begin(), replays.end());
  TERRACE_ASSIGN(const std::size_t cache_tokens, asked_capacity(config, *trace));
  const auto hit_rates = bench::hit_rate_questions(trace, cache_tokens);
  questions.insert(questions.end(), hit_rates.begin(), hit_rates.end());
  TERRACE_TRY(keep_wanted(options, questions));
  return print_rows("bench cache", options, config, read_machine(), ask_all(questions, options));
}

constexpr std::string_view kernels_words = R"(Rows:
  memory_read               bytes summed; gather_rows copies rows of so many bytes from all over
  kmeans                    clusters rows by the metric l2 or cosine; pq_encode makes codes of keys
  pq_scan_topk              scores all tokens by their codes, and takes the best
  pq_select                 selects by codes for several query heads together; channel, sign and
                            cluster score by some channels of keys, by signs, or by clusters
  refine, rests             a second scoring of the best; attention to groups' unselected rows
  decode_attention          attention of a step, rows contiguous or gathered; bytes of KV read
  tile_attention            attention of a prompt's tokens; attention_weights and tile_weights:
                            the weight that each row gets
  n, h, d, g, t             tokens, KV heads, dimensions of a head, query heads to a KV head,
                            tokens of a tile
  k, c, i                   selected tokens, or clusters of kmeans; clusters; iterations
  m, b, r                   parts of a key, bits of each part's code; bits of refine, or channels
  two_threads               two threads; other rows have one
  device                    with --backend: calls of an op on a layer of Llama 3.1 8B, a tenth of n
                            tokens selected; bytes of rows and index that a call has to read. At
                            n16384 most of them fit into the cache of a GPU
  attend, fetch             attention to all, to selected rows, with estimates; rows of the host
)";

constexpr std::string_view cache_words = R"(Rows:
  touch                     touched units a second; in a replay units of a trace's steps
  memory                    bytes of the cache's own records for a unit
  hit_rate                  share of the wanted tokens that were in the cache
  1x, 2x                    the cache holds that many times the units a layer wants in a step
  1x_selected, 2x_selected  and that many times the selected tokens
  lru, lfu, ...             replacement policies; terrace run --help says what each does
  itemwise_lru              the textbook's lru, which decides about one unit after the other
)";

template <typename Options>
CLI::App* add_action(CLI::App& bench, const char* name, const char* meaning, std::string_view words,
                     const std::shared_ptr<Options>& options, Result<int> (*action)(const Options&),
                     Invocation& invocation) {
  CLI::App* const command = bench.add_subcommand(name, meaning);
  add_bench_options(*command, *options, words);
  command->callback([options, action, &invocation] {
    invocation = {[options, action] { return action(*options); }, options->shared.verbose};
  });
  return command;
}

}  // namespace

void add_bench_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const bench = program.add_subcommand("bench", "measure this machine");
  bench->require_subcommand(1);
  add_bench_nvme(*bench, invocation);
  add_bench_pcie(*bench, invocation);
  add_bench_serving(*bench, invocation);
  add_quality_bench(*bench, invocation);
  add_drift_bench(*bench, invocation);
  const auto options = std::make_shared<KernelsOptions>();
  CLI::App* const kernels =
      add_action(*bench, "kernels", "clustering, selecting, attention, memory; one thread",
                 kernels_words, options, &bench_kernels, invocation);
  kernels
      ->add_option("--write-profile", options->profile_file,
                   "add the figures, and what clustering may cost, to a machine profile")
      ->option_text("FILE");
  add_key_flags(*kernels, kernels_flags, options->shared);
  kernels->add_option("--model", options->model, "model whose layers hide the clustering")
      ->option_text("DIR");
  const auto for_cache = std::make_shared<CacheBenchOptions>();
  CLI::App* const cache =
      add_action(*bench, "cache", "replacement policies: touches, steps and hits of a trace",
                 cache_words, for_cache, &bench_cache, invocation);
  cache->add_option("--trace", for_cache->trace, "what terrace run --trace recorded, or imported")
      ->option_text("FILE");
  cache->add_option("--model", for_cache->model, "refuse a trace that is not of this model")
      ->option_text("DIR");
  add_key_flags(*cache, cache_flags, for_cache->shared);
}

}  // namespace terrace::apps
