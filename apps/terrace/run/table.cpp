#include "run/table.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "profile_report.hpp"
#include "run/report.hpp"

namespace terrace::apps {
namespace {

constexpr std::size_t column_count = 13;
using Row = std::array<std::string, column_count>;

using Widths = std::array<std::size_t, column_count>;

/// The first column is as wide as the longest name in it, and never narrower than this says.
constexpr Widths least_widths{10, 6, 16, 6, 5, 5, 6, 6, 6, 6, 8, 8, 9};

/// Columns of one row, the first to the left, the others to the right.
std::string line(const Row& row, const Widths& widths) {
  std::string text = fmt::format("{:<{}}", row[0], widths[0]);
  for (std::size_t i = 1; i < column_count; ++i) {
    text += fmt::format(" {:>{}}", row[i], widths[i]);
  }
  return text + "\n";
}

std::string delta(const std::optional<MeanWithError>& value) {
  if (!value) return "-";
  const std::string mean = fmt::format("{:+.4f}", value->mean);
  return value->standard_error ? fmt::format("{} ±{:.4f}", mean, *value->standard_error) : mean;
}

/// Three digits and a unit: "1.5M".
std::string short_bytes(double bytes) {
  constexpr std::array<const char*, 5> units{"", "K", "M", "G", "T"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  const int digits = unit == 0 || bytes >= 99.95 ? 0 : 1;
  return fmt::format("{:.{}f}{}", bytes, digits, units[unit]);
}

Row row_of(const PolicyFigures& figures) {
  const BytesPerToken& bytes = figures.bytes_per_token;
  return {figures.policy,
          decimals(figures.bits_per_token, 3),
          delta(figures.bits_delta),
          decimals(figures.recall, 3),
          decimals(figures.attention_mass, 3),
          figures.cache ? decimals(figures.cache->hit_rate_tokens, 3) : "-",
          short_bytes(bytes.demand),
          short_bytes(bytes.refill),
          short_bytes(bytes.index),
          short_bytes(static_cast<double>(figures.device_peak_bytes)),
          decimals(figures.seconds.prefill, 3),
          decimals(1e3 * figures.seconds.decode_per_token, 3),
          decimals(1e3 * figures.seconds.attention(), 3)};
}

/// How many tokens a step attends to, as far as the budget says it.
std::string attended(const RunJob& job, std::size_t budget_tokens) {
  if (job.config.budget("retrieval.budget").kind == TokenBudget::Kind::mass) {
    return "as many tokens as have it";
  }
  return budget_tokens > job.context ? "all tokens" : fmt::format("{} tokens", budget_tokens);
}

/// Whether fewer tokens may be decoded than were asked for.
bool may_end(const RunJob& job) { return job.generate && !job.end_tokens.empty(); }

std::string head(const RunJob& job, const Machine& machine, std::size_t budget_tokens) {
  const engine::ModelConfig& model = job.model.config();
  return fmt::format(
      "model    {}: {:.1f} M parameters, {} layers, {} query heads on {} KV heads of {}\n"
      "text     {}: {} tokens of context, {}{} decoded\n"
      "machine  {}, {}, {} cores; link {}\n"
      "backend  {}\n"
      "budget   {} ({} attended per step)\n\n",
      job.model_folder, static_cast<double>(job.model.parameters()) / 1e6, model.layers,
      model.query_heads, model.kv_heads, model.head_dim, job.text.path, job.context,
      may_end(job) ? "up to " : "", job.decode, machine.cpu, machine.isa, machine.cores,
      describe_link(job.config), describe(job.backend), job.config.text("retrieval.budget"),
      attended(job, budget_tokens));
}

std::string needles_line(const PolicyFigures& figures) {
  std::size_t digits = 0;
  std::size_t right = 0;
  for (const NeedleScore& score : figures.needles) {
    digits += score.digits;
    right += score.right;
  }
  const bool in_prompt = figures.needles_asked == AskedAt::prompt;
  return fmt::format("needles  {}: {} of {} digits right{}\n", figures.policy, right, digits,
                     in_prompt ? ", asked in the prompt" : "");
}

/// Returns the costs that the planner went by, and the iterations that it chose.
std::string plan_lines(const PolicyFigures& figures) {
  return fmt::format("\nplanned  {}: {} iterations, by\n{}", figures.policy,
                     fmt::join(figures.clustering.iterations, ", "),
                     costs_text(*figures.planned_by));
}

/// How what was generated has ended, where a token ended it.
std::string end_of(const RunJob& job, const GeneratedTokens& generated) {
  if (!generated.ended) return {};
  return fmt::format(" (ended by token {} after {} of {} tokens)", index(generated.tokens.back()),
                     generated.tokens.size(), job.decode);
}

std::string generated_text(const RunJob& job, const PolicyFigures& figures) {
  if (figures.generated.tokens.empty()) return {};
  return fmt::format("\n{}{}:\n{}\n", figures.policy, end_of(job, figures.generated),
                     spell_generated(figures.generated, job.tokens_are_bytes()));
}

/// Prints the cost of a turn, and the tokens generated after it.
std::string turn_text(const RunJob& job, const TurnFigures& turn) {
  std::string text =
      fmt::format("{} tokens in {:.3f} s, {} streamed; {:.3f} ms/token", turn.prompt_tokens,
                  turn.prompt_seconds, short_bytes(static_cast<double>(turn.streamed_bytes)),
                  1e3 * turn.decode_per_token);
  if (turn.bits_per_token) {
    const char* const unit = job.tokens_are_bytes() ? "byte" : "token";
    return text + fmt::format(", {:.3f} bits/{}\n", *turn.bits_per_token, unit);
  }
  return text + end_of(job, turn.generated) + "\n" +
         spell_generated(turn.generated, job.tokens_are_bytes()) + "\n";
}

std::string turn_lines(const RunJob& job, const PolicyFigures& figures) {
  std::string text = figures.turns.empty() ? "" : "\n";
  for (std::size_t i = 0; i < figures.turns.size(); ++i) {
    text +=
        fmt::format("turn {:<4}{}: {}", i + 1, figures.policy, turn_text(job, figures.turns[i]));
  }
  return text;
}

/// Returns the time of each cache's upkeep; nothing if no policy has a cache.
std::string upkeep_line(std::span<const PolicyFigures> figures) {
  std::vector<std::string> shares;
  for (const PolicyFigures& one : figures) {
    if (!one.cache) continue;
    shares.push_back(fmt::format("{} {:.1f} ({:.1f} waited for)", one.policy,
                                 100 * one.cache_upkeep_ratio,
                                 100 * one.cache_upkeep_waited_ratio));
  }
  if (shares.empty()) return {};
  return fmt::format("\nupkeep   of the cache, % of decode time: {}\n", fmt::join(shares, ", "));
}

const PolicyFigures* figures_of(std::span<const PolicyFigures> figures, std::string_view policy) {
  const auto found = std::ranges::find(figures, policy, &PolicyFigures::policy);
  return found == figures.end() ? nullptr : &*found;
}

std::string bound_line(std::span<const PolicyFigures> figures) {
  if (figures.size() < 2 || figures_of(figures, "oracle") == nullptr) return {};
  return "\nbound    oracle selects by the exact scores of all keys: a bound, too slow to be "
         "used\n";
}

/// Compares the policy with the least loss with full attention.
std::string summary_line(const RunJob& job, std::span<const PolicyFigures> figures) {
  const PolicyFigures* const full = figures_of(figures, "full");
  const PolicyFigures* best = nullptr;
  for (const PolicyFigures& one : figures) {
    if (&one == full || one.policy == "oracle" || !one.bits_delta) continue;
    if (best == nullptr || one.bits_delta->mean < best->bits_delta->mean) best = &one;
  }
  if (full == nullptr || best == nullptr || full->device_peak_bytes == 0) return {};
  const auto percent = [](double part, double whole) { return 100 * part / whole; };
  const std::optional<double>& error = best->bits_delta->standard_error;
  return fmt::format(
      "summary  {} attends to {:.0f} % of the tokens, at {:+.3f}{} bits/{}. Compared with full it\n"
      "         takes {:.0f} % of the device memory and {:.0f} % of the time a token\n",
      best->policy, percent(best->attended_tokens_mean, full->attended_tokens_mean),
      best->bits_delta->mean, error ? fmt::format(" ±{:.3f}", *error) : "",
      job.tokens_are_bytes() ? "byte" : "token",
      percent(static_cast<double>(best->device_peak_bytes),
              static_cast<double>(full->device_peak_bytes)),
      percent(best->seconds.decode_per_token, full->seconds.decode_per_token));
}

/// The budget of a policy that has one: full attention's is all there is.
std::size_t budget_of(std::span<const PolicyFigures> figures) {
  std::size_t budget = figures.front().budget_tokens;
  for (const PolicyFigures& one : figures) budget = std::min(budget, one.budget_tokens);
  return budget;
}

/// Says how much of a policy's context was restored, and how much was kept.
std::string prefix_lines(const RunJob& job, const PolicyFigures& figures) {
  std::string text;
  if (figures.restored) {
    text += fmt::format("{}: {} of {} tokens restored under {}, {} read\n", figures.policy,
                        figures.restored->tokens, job.context, job.restore,
                        short_bytes(static_cast<double>(figures.restored->bytes_read)));
  }
  if (figures.kept) {
    text +=
        fmt::format("{}: {} tokens kept under {}, {} written in {:.2f} s\n", figures.policy,
                    figures.kept->tokens, job.save,
                    short_bytes(static_cast<double>(figures.kept->bytes)), figures.seconds.keep);
  }
  return text;
}

}  // namespace

std::string decimals(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string figures_table(std::span<const PolicyFigures> figures, bool bytes) {
  Widths widths = least_widths;
  for (const PolicyFigures& one : figures) widths[0] = std::max(widths[0], one.policy.size());
  std::string text = line({"", "bits/", "Δ vs full", "", "", "hit", "bytes/", "bytes/", "bytes/",
                           "device", "prefill", "ms/", "attention"},
                          widths) +
                     line({"policy", bytes ? "byte" : "token", "± s.e.", "recall", "mass", "rate",
                           "demand", "refill", "select", "peak", "s", "token", "ms/token"},
                          widths);
  for (const PolicyFigures& one : figures) text += line(row_of(one), widths);
  return text;
}

std::string run_table(const RunJob& job, const Machine& machine,
                      std::span<const PolicyFigures> figures) {
  std::string text = head(job, machine, budget_of(figures));
  text += figures_table(figures, job.tokens_are_bytes());
  text += upkeep_line(figures);
  for (const PolicyFigures& one : figures) text += prefix_lines(job, one);
  for (const PolicyFigures& one : figures) {
    if (one.planned_by) text += plan_lines(one);
  }
  if (!job.needles.empty()) text += "\n";
  for (const PolicyFigures& one : figures) {
    if (!one.needles.empty()) text += needles_line(one);
  }
  for (const PolicyFigures& one : figures) text += generated_text(job, one);
  for (const PolicyFigures& one : figures) text += turn_lines(job, one);
  text += bound_line(figures);
  return text + summary_line(job, figures);
}

}  // namespace terrace::apps
