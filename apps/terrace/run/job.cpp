#include "run/job.hpp"

#include <initializer_list>
#include <utility>

#include "config_check.hpp"
#include "output.hpp"
#include "program_files.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/input_file.hpp"
#include "terrace/policies/retrieval.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::apps {
namespace {

constexpr std::size_t tokens_max = std::size_t{1} << 30;

/// If the user names no policy, the command's defaults are run. If the user gives no least budget,
/// policies are compared at exactly the given share.
Result<Settings> resolve(const RunOptions& options) {
  TERRACE_ASSIGN(Settings settings, resolve_settings(options.shared));
  Config& config = settings.config;
  if (!is_set(config, "retrieval.policy")) {
    TERRACE_TRY(config.set("retrieval.policy", options.default_policies, {}));
  }
  if (!is_set(config, "retrieval.budget_min")) {
    TERRACE_TRY(config.set("retrieval.budget_min", "1", {}));
  }
  return settings;
}

Result<std::filesystem::path> model_folder(const RunOptions& options) {
  if (options.model.empty()) return bundled_model();
  return std::filesystem::path(options.model);
}

std::vector<NamedFile> inputs_of(const RunOptions& options) {
  return {{"--text", options.text_file},
          {"--tokens", options.tokens_file},
          {"--needles-file", options.needles_file},
          {"--turns", options.turns_file}};
}

/// Standard input can be read once.
Status check_inputs(const RunOptions& options) {
  const NamedFile* taken = nullptr;
  const std::vector<NamedFile> inputs = inputs_of(options);
  for (const NamedFile& input : inputs) {
    if (input.path != standard_input) continue;
    if (taken != nullptr) {
      return fail(Errc::invalid_argument,
                  "{} -: standard input is read for {}; name a file for one of them", input.name,
                  taken->name);
    }
    taken = &input;
  }
  return {};
}

/// Refuses options of planted facts if no facts are planted.
Status check_needles(const RunOptions& options) {
  if (options.needles > 0 || !options.needles_file.empty()) return {};
  const RunOptions none;
  const char* const idle = options.needles_asked != none.needles_asked ? "--needles-asked"
                           : options.needles_form != none.needles_form ? "--needles-form"
                                                                       : nullptr;
  if (idle == nullptr) return {};
  return fail(Errc::invalid_argument, "{}: there are no facts to ask for; give --needles N", idle);
}

/// Rows for later runs are kept in a file.
Status check_kept(const RunOptions& options, const Config& config) {
  if (options.save.empty() && options.restore.empty()) return {};
  const char* const flag = options.save.empty() ? "--restore" : "--save";
  if (config.text("tier.nvme.path").empty()) {
    return fail(Errc::invalid_argument, "{} keeps rows in a file: name it with --nvme", flag);
  }
  if (!options.trace_file.empty()) {
    return fail(Errc::invalid_argument, "--trace records a prompt that is computed: leave out {}",
                flag);
  }
  return {};
}

/// Returns what names the model where rows are kept or looked for; otherwise nothing.
Result<std::string> digest_for(const RunOptions& options, const std::filesystem::path& folder) {
  if (options.save.empty() && options.restore.empty()) return std::string();
  return tuning::model_digest(folder);
}

/// A trace records the steps that are decoded after one prompt; the prompt itself is not among its
/// steps. With turns it records prompts, in pieces or not.
Status check_trace(const RunOptions& options) {
  const bool of_steps = !options.trace_file.empty() && options.turns_file.empty();
  if (!of_steps || options.prefill_chunk == 0) return {};
  return fail(Errc::invalid_argument,
              "--trace records a prompt in one piece, and the tokens decoded after it: leave out "
              "--prefill-chunk, or give --turns to record prompts");
}

/// A trace may take the place of another, and of no other file: that may be one meant to be read.
Status check_trace_target(const RunOptions& options) {
  const std::string& file = options.trace_file;
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none) || std::filesystem::is_empty(file, none)) {
    return {};
  }
  if (!tuning::TraceReader::open(file)) {
    return fail(
        Errc::invalid_argument,
        "--trace {}: the file there is no trace that this program reads, and is not written "
        "over; name another, or remove it",
        file);
  }
  if (!options.shared.quiet) warn("--trace {}: the trace there will be replaced", file);
  return {};
}

Status check_counts(const RunOptions& options) {
  if (options.prefill_chunk > tokens_max) {
    return fail(Errc::invalid_argument, "--prefill-chunk {}: give up to {} tokens",
                options.prefill_chunk, tokens_max);
  }
  for (const auto& [name, count] :
       {std::pair{"--context", options.context}, std::pair{"--decode", options.decode}}) {
    if (count == 0 || count > tokens_max) {
      return fail(Errc::invalid_argument, "{} {}: give 1 to {} tokens", name, count, tokens_max);
    }
  }
  return {};
}

/// Errors in a model's files are no wrong usage.
Error as_model_error(Error error) {
  if (error.code == Errc::invalid_argument) error.code = Errc::corrupt;
  return error;
}

Result<std::vector<Needle>> load_needles(const RunOptions& options, const Config& config,
                                         std::size_t vocabulary) {
  if (!options.needles_file.empty()) {
    return read_needles_file(options.needles_file, options.context, vocabulary);
  }
  if (options.needles > 0 && vocabulary != 256) {
    return fail(Errc::invalid_argument,
                "--needles: the model has {} tokens, not bytes: plant the facts with "
                "tools/tokenize.py and give --tokens and --needles-file",
                vocabulary);
  }
  TERRACE_ASSIGN(const NeedleForm form, parse_needle_form(options.needles_form));
  return make_needles(options.needles, config.integer("seed"), form);
}

/// The text of a job, with its needles in it.
Result<TokenText> load_text(const RunOptions& options, std::span<const Needle> needles,
                            std::size_t turns, std::size_t vocabulary) {
  // Step t feeds token context + t and scores the next one; generated steps need no text.
  const std::size_t behind = options.generate ? 0 : (1 + turns) * options.decode + 1;
  // Statements of a needles file are in its tokens already.
  const auto planted = options.needles > 0 ? needles : std::span<const Needle>{};
  TERRACE_ASSIGN(const std::size_t room, room_beside(planted, options.context));
  TERRACE_ASSIGN(TokenText text,
                 read_tokens({options.text_file, options.tokens_file}, vocabulary, room + behind));
  TERRACE_ASSIGN(text.tokens, plant_needles(planted, text.tokens, options.context));
  const auto context = std::span(text.tokens).first(options.context);
  TERRACE_TRY(check_planted(needles, context, options.needles_file));
  return text;
}

}  // namespace

std::vector<NamedFile> job_sources(const RunOptions& options, const Config& config) {
  std::vector<NamedFile> sources = config_sources(options.shared, config);
  const std::filesystem::path folder = model_folder(options).value_or("");
  for (const NamedFile& file : model_sources(folder)) sources.push_back(file);
  for (const NamedFile& file : inputs_of(options)) {
    if (file.path != standard_input) sources.push_back(file);
  }
  return sources;
}

Result<RunJob> prepare_job(const RunOptions& options) {
  TERRACE_TRY(check_counts(options));
  TERRACE_TRY(check_inputs(options));
  TERRACE_TRY(check_needles(options));
  TERRACE_TRY(check_trace(options));
  TERRACE_ASSIGN(Settings settings, resolve(options));
  Config& config = settings.config;
  TERRACE_TRY(check_kept(options, config));
  TERRACE_TRY(check_targets({{"--trace", options.trace_file},
                             {"--timeline", options.timeline_file},
                             {"--report", options.report_file}},
                            job_sources(options, config)));
  TERRACE_TRY(check_trace_target(options));
  TERRACE_ASSIGN(auto profile, settings.profile);
  TERRACE_ASSIGN(const std::filesystem::path folder, model_folder(options));
  const auto shape = engine::read_model_config(folder).map_error(as_model_error);
  if (!shape) return tl::unexpected(shape.error());
  offload::BackendChoice backend;
  SharedGates gates;
  TERRACE_TRY(check_policies(
      config, shape->kv_shape(Dtype::f16),
      [&](const Config& own) {
        auto chosen = choose_backend(own);
        if (chosen) backend = chosen->choice;
        return chosen;
      },
      [&](const Config& own) -> Result<SharedGates> {
        TERRACE_ASSIGN(gates, read_gates(own, folder, shape->kv_shape(Dtype::f16)));
        return gates;
      }));
  TERRACE_ASSIGN(auto outliers, read_outlier_heads(config, shape->kv_shape(Dtype::f16)));
  TERRACE_ASSIGN(auto needles, load_needles(options, config, shape->vocabulary));
  std::vector<Turn> turns;
  if (!options.turns_file.empty()) {
    TERRACE_ASSIGN(turns, read_turns_file(options.turns_file, shape->vocabulary));
  }
  TERRACE_ASSIGN(TokenText text, load_text(options, needles, turns.size(), shape->vocabulary));
  std::vector<TokenId> end_tokens;
  if (options.generate) {
    auto read = engine::read_end_tokens(folder, shape->vocabulary).map_error(as_model_error);
    if (!read) return tl::unexpected(read.error());
    end_tokens = std::move(*read);
  }
  auto model = engine::LlamaModel::load(folder).map_error(as_model_error);
  if (!model) return tl::unexpected(model.error());
  TERRACE_ASSIGN(std::vector<std::string> policies, policy_names(config));
  TERRACE_ASSIGN(std::string digest, digest_for(options, folder));
  return RunJob{
      .config = std::move(config),
      .policies = std::move(policies),
      .backend = std::move(backend),
      .profile = std::move(profile),
      .model_folder = folder.string(),
      .model = std::move(*model),
      .gates = std::move(gates),
      .outlier_heads = std::move(outliers),
      .text = std::move(text),
      .context = options.context,
      .decode = options.decode,
      .prefill_chunk = options.prefill_chunk,
      .turns = std::move(turns),
      .generate = options.generate,
      .end_tokens = std::move(end_tokens),
      .needles = std::move(needles),
      .needles_asked = options.needles_asked == "prompt" ? AskedAt::prompt : AskedAt::after,
      .needles_form = options.needles_file.empty() ? options.needles_form : "",
      .save = options.save,
      .restore = options.restore,
      .model_digest = std::move(digest)};
}

PrefixQuery kept_context(const RunJob& job, const std::string& name) {
  return {.tokens = std::span(job.text.tokens).first(job.context - 1), .salt = name};
}

Config config_of_policy(const RunJob& job, const std::string& policy) {
  return with_policy(job.config, policy);
}

CacheSharing JobPolicy::cache_sharing() const noexcept {
  return {.slot_tokens =
              cache_slot_tokens(options.cache.granularity, options.shape, options.block_tokens),
          .selected_tokens = split.selected};
}

std::size_t RunJob::conversation_tokens() const noexcept {
  std::size_t tokens = context + decode;
  for (const Turn& turn : turns) tokens += turn.size() + decode;
  return tokens;
}

std::size_t RunJob::tokens_max() const noexcept {
  std::size_t tokens = conversation_tokens();
  for (const Needle& needle : needles) tokens += needle.question.size() + needle.answer.size();
  return tokens;
}

namespace {

/// Says how rows depend on the context: some kinds of RoPE go by its length. RoPE's other
/// parameters are in the model's digest.
std::string rope_of(const RunJob& job) {
  const engine::RopeScaling& scaling = job.model.config().rope_scaling;
  const bool goes_by_length = std::holds_alternative<engine::DynamicRopeScaling>(scaling) ||
                              std::holds_alternative<engine::LongRopeScaling>(scaling);
  return goes_by_length ? fmt::format("for {} tokens", job.context) : "";
}

}  // namespace

Result<RuntimeOptions> runtime_options(const RunJob& job, const Config& config, Dtype dtype) {
  TERRACE_ASSIGN(RuntimeOptions options,
                 RuntimeOptions::from(config, job.model.config().kv_shape(dtype)));
  options.retention.gates = job.gates;
  options.retention.outlier_heads = job.outlier_heads;
  // Two runs must be equal.
  if (config.is("index.until_ready", "auto")) options.until_ready = UntilReady::wait;
  // All steps have the budget of the first one, so that policies and traces compare.
  const bool grows = options.budget.kind == TokenBudget::Kind::share;
  if (grows && options.retention_policy == "none") {
    const auto tokens = static_cast<double>(options.budget.tokens(job.context));
    options.budget = {.kind = TokenBudget::Kind::tokens, .value = tokens};
  }
  if (options.budget.kind == TokenBudget::Kind::tokens) {
    options.budget.value = std::min(options.budget.value, static_cast<double>(job.tokens_max()));
  }
  if (!job.model_digest.empty()) {
    options.prefixes.model = job.model_digest;
    options.prefixes.rope = rope_of(job);
  }
  return options;
}

Result<JobPolicy> policy_of_job(const RunJob& job, const std::string& policy) {
  TERRACE_ASSIGN(RuntimeOptions options,
                 runtime_options(job, config_of_policy(job, policy), Dtype::f16));
  TERRACE_ASSIGN(const auto made,
                 policies::make_retrieval_policy(options.policy, options.retrieval));
  TERRACE_ASSIGN(const IndexLayout layout, made->index_layout(options.shape));
  const auto split = policies::split_budget(options.budget_terms(job.context), made->traits());
  return JobPolicy{std::move(options), made->traits(), layout, split};
}

Config config_of_reference(const RunJob& job) {
  return with_values(job.config, {{"retrieval.policy", "full"},
                                  {"retention.policy", "none"},
                                  {"retrieval.budget", "1.0"},
                                  {"device.memory", "unlimited"},
                                  {"link.bandwidth", "unlimited"},
                                  {"link.latency", "0us"}});
}

}  // namespace terrace::apps
