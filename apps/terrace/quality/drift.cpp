#include "quality/drift.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <span>

#include "harness/row.hpp"
#include "run/model_notes.hpp"
#include "run/quality_pass.hpp"
#include "run/timed_pass.hpp"

namespace terrace::apps {
namespace {

// Far enough into the default text that it is another licence.
constexpr std::size_t default_turn_at = 60'000;

/// Replaces what follows the turn, the last scored token included.
Status turn_text(const DriftOptions& options, RunJob& job) {
  const std::size_t begin = job.context + options.turn_after;
  if (options.turn_after >= job.decode) {
    return fail(Errc::invalid_argument, "--turn-after {}: the output ends after {} tokens",
                options.turn_after, job.decode);
  }
  const std::size_t wanted = job.text.tokens.size() - begin;
  const bool own = options.turn_file.empty() && options.run.tokens_file.empty();
  const TextSource source = options.run.tokens_file.empty() || options.turn_file.empty()
                                ? TextSource{.text_file = options.turn_file}
                                : TextSource{.tokens_file = options.turn_file};
  TERRACE_ASSIGN(const TokenText turned, read_tokens(source, job.model.config().vocabulary,
                                                     wanted + (own ? default_turn_at : 0)));
  std::copy(turned.tokens.end() - static_cast<std::ptrdiff_t>(wanted), turned.tokens.end(),
            job.text.tokens.begin() + static_cast<std::ptrdiff_t>(begin));
  return {};
}

using Steps = std::span<const std::optional<double>>;

/// Returns the mean over the steps that have the figure.
std::optional<double> mean(Steps steps) {
  double sum = 0;
  std::size_t count = 0;
  for (const std::optional<double>& step : steps) {
    if (!step) continue;
    sum += *step;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

DriftCurve means(Steps steps, std::size_t span) {
  DriftCurve result;
  for (std::size_t begin = 0; begin < steps.size(); begin += span) {
    result.push_back(mean(steps.subspan(begin, std::min(span, steps.size() - begin))));
  }
  return result;
}

StepSpread spread_of(std::vector<Duration> steps) {
  std::ranges::sort(steps);
  const auto quantile = [&](double share) {
    return seconds(steps[static_cast<std::size_t>(share * static_cast<double>(steps.size() - 1))]);
  };
  return {.median = quantile(0.5), .p99 = quantile(0.99), .longest = quantile(1)};
}

/// Decodes once more from the context on, with nothing but refreshes beside the steps.
Result<StepSpread> time_drift(const RunJob& job, Session& session, Progress& progress) {
  TERRACE_TRY(return_to_context(job, session));
  std::vector<TokenId> fed;
  TERRACE_ASSIGN(std::vector<Duration> steps, time_steps(job, session, progress, fed));
  // The first one waits for the prompt's index, or for what was cut off.
  if (steps.size() > 1) steps.erase(steps.begin());
  return spread_of(std::move(steps));
}

Result<DriftRun> run_drift(const RunJob& job, const DriftOptions& options,
                           const std::string& policy, std::size_t refresh_tokens,
                           engine::AttentionProbe& probe, Progress& progress) {
  Config config = config_of_policy(job, policy);
  TERRACE_TRY(config.set("index.refresh_tokens", std::to_string(refresh_tokens),
                         {ConfigOrigin::flag, "--refresh"}));
  TERRACE_ASSIGN(Session session, open_session(job, config, progress));
  // The first run's prompt shows the probe its keys; others have the same.
  session.decoder->observe(&probe);
  TERRACE_TRY(prefill(job, session));
  const auto fed = std::span(job.text.tokens).subspan(job.context, job.decode);
  const TimedPass again{.fed = {fed.begin(), fed.end()}};
  TERRACE_ASSIGN(const ClusteringReport clustering, session.sequence->clustering());
  TERRACE_ASSIGN(const QualityPass pass, run_quality_pass(job, session, again, probe, progress));
  const bool planned = session.runtime->traits().clusters && clustering.planned;
  DriftCurve recall;
  DriftCurve mass;
  for (const engine::AttentionQuality& step : pass.scores.attention) {
    recall.push_back(step.recall_count > 0 ? std::optional(step.recall()) : std::nullopt);
    mass.push_back(step.mass());
  }
  const SequenceCounters counters = session.sequence->counters();
  TERRACE_ASSIGN(const StepSpread step, time_drift(job, session, progress));
  const DriftCurve bits(pass.scores.bits.begin(), pass.scores.bits.end());
  const std::size_t settled = (job.decode - options.turn_after) / 2;
  return DriftRun{.policy = policy,
                  .refresh_tokens = refresh_tokens,
                  .refreshes = counters.refreshes,
                  .step = step,
                  .planned_by = planned ? std::optional(session.runtime->options().planning.costs)
                                        : std::nullopt,
                  .recall = means(recall, options.span),
                  .mass = means(mass, options.span),
                  .bits = means(bits, options.span),
                  .settled_recall = mean(Steps(recall).last(std::max<std::size_t>(1, settled)))};
}

Json to_json(const DriftCurve& curve) {
  Json values = Json::array();
  for (const std::optional<double>& value : curve) values.push_back(value ? Json(*value) : Json());
  return values;
}

std::string in_columns(const std::optional<double>& recall, int width) {
  return recall ? fmt::format(" {:>{}.3f}", *recall, width) : fmt::format(" {:>{}}", "-", width);
}

}  // namespace

Result<DriftStudy> study_drift(const DriftOptions& options, Progress& progress) {
  if (options.refresh_tokens == 0) {
    return fail(Errc::invalid_argument,
                "--refresh 0: no index would be built again; say after how many tokens");
  }
  TERRACE_ASSIGN(RunJob job, prepare_job(options.run));
  show_model_notes(job.model, options.run.shared);
  TERRACE_TRY(turn_text(options, job));
  DriftStudy study{.config = job.config,
                   .model = job.model_folder,
                   .gpu = job.backend.device,
                   .context = job.context,
                   .decode = job.decode,
                   .turn_after = options.turn_after,
                   .span = options.span,
                   .quick = options.quick};
  engine::AttentionProbe probe(job.model.config().kv_shape(kv_dtype(job)),
                               job.context + job.decode);
  for (const std::string& policy : job.policies) {
    for (const std::size_t refresh : {std::size_t{0}, options.refresh_tokens}) {
      progress.begin_with(refresh == 0 ? "without refresh, " : "with refresh, ");
      TERRACE_ASSIGN(DriftRun run, run_drift(job, options, policy, refresh, probe, progress));
      study.runs.push_back(std::move(run));
    }
  }
  progress.clear();
  return study;
}

Json drift_rows(const DriftStudy& study) {
  Json rows = Json::array();
  for (const DriftRun& run : study.runs) {
    const bench::Row row{
        .name = fmt::format("drift_{}_{}", run.policy, run.refresh_tokens == 0 ? "grown" : "anew"),
        .parameters = {{"policy", run.policy},
                       {"refresh_tokens", run.refresh_tokens},
                       {"model", study.model},
                       {"context_tokens", study.context},
                       {"turn_after", study.turn_after},
                       {"span", study.span}},
        .value = run.settled_recall,
        .reason = run.settled_recall ? "" : "the policy selects nothing",
        .unit = "recall",
        .better = bench::Better::higher,
        .samples = (study.decode - study.turn_after) / 2};
    rows.push_back(bench::to_json(row));
    rows.back()["figures"] = {
        {"recall", to_json(run.recall)},
        {"attention_mass", to_json(run.mass)},
        {"bits_per_token", to_json(run.bits)},
        {"refreshes", run.refreshes},
        {"step_seconds",
         {{"median", run.step.median}, {"p99", run.step.p99}, {"longest", run.step.longest}}}};
  }
  return rows;
}

std::string drift_table(const DriftStudy& study) {
  constexpr std::size_t columns = 10;
  const std::size_t spans = study.runs.front().recall.size();
  const std::size_t each = (spans + columns - 1) / columns;
  std::string text =
      fmt::format("recall over {} tokens decoded after {}; the topic turns after {}\n\n{:<24}",
                  study.decode, study.context, study.turn_after, "from step");
  for (std::size_t at = 0; at < spans; at += each) {
    text += fmt::format(" {:>6}", at * study.span);
  }
  text += fmt::format(" {:>8} {:>9} {:>7} {:>7} {:>7}\n", "settled", "refreshes", "step ms", "p99",
                      "longest");
  for (const DriftRun& run : study.runs) {
    text += fmt::format("{:<24}", run.policy + (run.refresh_tokens == 0 ? "" : ", refreshed"));
    for (const auto& recall : means(run.recall, each)) text += in_columns(recall, 6);
    text += in_columns(run.settled_recall, 8);
    text += fmt::format(" {:>9} {:>7.2f} {:>7.2f} {:>7.2f}\n", run.refreshes, 1e3 * run.step.median,
                        1e3 * run.step.p99, 1e3 * run.step.longest);
  }
  return text;
}

}  // namespace terrace::apps
