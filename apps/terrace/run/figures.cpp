#include "run/figures.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace terrace::apps {
namespace {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// A share of nothing is no number.
std::optional<double> share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

double agreement(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto same = std::inner_product(a.begin(), a.end(), b.begin(), std::size_t{0}, std::plus<>(),
                                       std::equal_to<>());
  return static_cast<double>(same) / static_cast<double>(a.size());
}

/// Figures that need a text to compare with.
void compare_with_text(const RunJob& job, const StepScores& scores, const StepScores& reference,
                       PolicyFigures& figures) {
  if (job.generate) return;
  figures.bits_per_token = mean_of(scores.bits);
  if (job.tokens_are_bytes()) figures.bits_per_byte = figures.bits_per_token;
  figures.bits_delta = paired_difference(scores.bits, reference.bits);
  figures.top1_agreement = agreement(scores.most_likely, reference.most_likely);
}

std::optional<CacheFigures> figures_of_cache(const Session& session,
                                             const CacheCounters& counters) {
  const std::size_t capacity = session.sequence->cache_capacity_tokens();
  if (!session.runtime->traits().selects || capacity == 0) return std::nullopt;
  const CacheOptions& cache = session.runtime->options().cache;
  return cache_figures(cache.policy, std::string(to_string(cache.granularity)), capacity, counters);
}

std::optional<RetentionFigures> figures_of_retention(const Session& session,
                                                     const RetentionReport& report) {
  const RetentionTraits* const traits = session.runtime->retention_traits();
  if (traits == nullptr || report.lists == 0) return std::nullopt;
  const auto mean = [&](std::uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(report.lists);
  };
  return RetentionFigures{.policy = std::string(traits->name),
                          .kept_mean = mean(report.kept),
                          .merged_mean = mean(report.merged),
                          .dropped = mean(report.dropped),
                          .flushes = report.flushes,
                          .flush_seconds = seconds(report.busy)};
}

GeneratedTokens generated_tokens(const RunJob& job, const std::vector<TokenId>& fed) {
  if (!job.generate) return {};
  return {fed, has_ended(job, fed)};
}

std::vector<TurnFigures> figures_of_turns(const RunJob& job, const TimedPass& timed,
                                          const QualityPass& quality) {
  std::vector<TurnFigures> turns;
  for (std::size_t i = 0; i < timed.turns.size(); ++i) {
    const TimedTurn& turn = timed.turns[i];
    turns.push_back({.prompt_tokens = job.turns[i].size(),
                     .decoded_tokens = turn.fed.size(),
                     .prompt_seconds = turn.prompt_seconds,
                     .decode_per_token = turn.decode_per_token,
                     .streamed_bytes = turn.streamed_bytes,
                     .generated = generated_tokens(job, turn.fed)});
    if (!job.generate) turns.back().bits_per_token = mean_of(quality.turns[i].bits);
  }
  return turns;
}

BytesPerToken bytes_per_token(const LinkBytes& bytes, std::size_t context, std::size_t decode) {
  const auto per = [](std::uint64_t total, std::size_t tokens) {
    return static_cast<double>(total) / static_cast<double>(tokens);
  };
  return {.offload = per(bytes.offload, context + decode),
          .demand = per(bytes.demand, decode),
          .refill = per(bytes.refill, decode),
          .index = per(bytes.index, decode)};
}

std::optional<double> hidden_ratio(const ClusteringReport& report) {
  if (report.busy <= Duration::zero()) return std::nullopt;
  return 1 - seconds(report.waited) / seconds(report.busy);
}

}  // namespace

MeanWithError paired_difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> differences(a.size());
  std::ranges::transform(a, b, differences.begin(), std::minus<>());
  MeanWithError result{.mean = mean_of(differences)};
  if (a.size() < 2) return result;
  // Differences of neighbouring steps are alike. Means over longer stretches are nearly
  // independent.
  const auto stretches =
      std::max<std::size_t>(2, static_cast<std::size_t>(std::sqrt(static_cast<double>(a.size()))));
  double squares = 0;
  for (std::size_t i = 0; i < stretches; ++i) {
    const std::size_t begin = i * a.size() / stretches;
    const std::size_t end = (i + 1) * a.size() / stretches;
    const double mean = mean_of(std::span(differences).subspan(begin, end - begin));
    squares += (mean - result.mean) * (mean - result.mean);
  }
  const auto count = static_cast<double>(stretches);
  result.standard_error = std::sqrt(squares / (count - 1) / count);
  return result;
}

CacheFigures cache_figures(std::string policy, std::string granularity, std::size_t capacity_tokens,
                           const CacheCounters& counters) {
  return {
      .policy = std::move(policy),
      .granularity = std::move(granularity),
      .capacity_tokens = capacity_tokens,
      .hit_rate_tokens = share(counters.rows_hit, counters.rows_hit + counters.rows_missed),
      .hit_rate_units = share(counters.blocks_hit, counters.blocks_hit + counters.blocks_missed),
      .counters = counters};
}

PolicyFigures make_figures(const RunJob& job, const Session& session, const TimedPass& timed,
                           const QualityPass& quality, const ReferencePass& reference) {
  const SequenceCounters& counters = timed.counters;
  const RetrievalTraits& traits = session.runtime->traits();
  const auto lists = static_cast<double>(counters.lists);
  const std::size_t steps = timed.fed.size();
  const double decode_seconds = timed.seconds.decode_per_token * static_cast<double>(steps);
  const std::size_t row_bytes = session.runtime->options().shape.row_bytes();
  PolicyFigures figures{
      .policy = session.name,
      .placement = job.config.text("placement"),
      .gemm = std::string(session.decoder->gemm()),
      .budget_tokens = session.sequence->budget_tokens(),
      .selected_tokens = session.sequence->selected_tokens(),
      .attended_tokens_mean = static_cast<double>(counters.attended) / lists,
      .attention_mass = quality.attention.mass(),
      .retention = figures_of_retention(session, timed.retention),
      .pseudo_entries_mean = static_cast<double>(counters.pseudo_entries) / lists,
      .needles_asked = job.needles_asked,
      .needles_form = job.needles_form,
      .cache = figures_of_cache(session, counters.cache),
      .bytes = counters.bytes,
      .nvme =
          !session.runtime->has_store_below_host() ? std::nullopt : std::optional(counters.store),
      .restored = job.restore.empty() ? std::nullopt : std::optional(session.restored),
      .kept = job.save.empty() ? std::nullopt : std::optional(session.kept),
      .bytes_per_token = bytes_per_token(counters.bytes, job.context, steps),
      .seconds = timed.seconds,
      .attend_bytes_per_second = static_cast<double>(counters.attended * row_bytes) /
                                 (timed.seconds.attend * static_cast<double>(steps)),
      .cache_upkeep_ratio = seconds(counters.upkeep) / decode_seconds,
      .cache_upkeep_waited_ratio = seconds(counters.upkeep_waited) / decode_seconds,
      .device_peak_bytes = timed.device_peak_bytes,
      .prompt_device_peak_bytes = timed.prompt_device_peak_bytes,
      .waits = timed.counters.waits,
      .host_peak_bytes = timed.host_peak_bytes,
      .index_bytes = session.runtime->memory_need({.tokens = job.context + steps})
                         .value_or(MemoryNeed{})
                         .index_bytes,
      .generated = generated_tokens(job, timed.fed),
      .turns = figures_of_turns(job, timed, quality)};
  compare_with_text(job, quality.scores, reference.scores, figures);
  if (!quality.attention.errors.empty()) figures.attention_error = quality.attention.error();
  if (quality.attention.recall_count > 0) figures.recall = quality.attention.recall();
  if (traits.clusters) {
    figures.clustering = timed.clustering;
    if (timed.clustering.planned) {
      figures.planned_by = session.runtime->options().planning.costs;
    }
    figures.hidden_ratio = hidden_ratio(timed.clustering);
  }
  return figures;
}

}  // namespace terrace::apps
