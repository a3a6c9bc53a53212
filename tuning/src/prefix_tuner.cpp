#include "terrace/tuning/prefix_tuner.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "terrace/core/bytes.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {
namespace {

/// A larger tier that saves less of the prefill is not recommended.
constexpr double worth_it = 0.01;

/// The largest size of the lowest tier that is tried, beside none at all.
constexpr std::uint64_t most_times = 64;

std::uint64_t times(std::uint64_t bytes, std::uint64_t factor) {
  return bytes > unlimited_bytes / factor ? unlimited_bytes : factor * bytes;
}

/// Returns what was asked for, with one tier so many times as large.
PrefixChoice larger(const PrefixTuneRequest& request, const PrefixChoice& asked, std::size_t tier,
                    std::uint64_t factor) {
  PrefixChoice choice{.name = fmt::format("{}_x{}", request.tiers[tier].name, factor),
                      .bytes = asked.bytes,
                      .tier = tier,
                      .times = factor};
  choice.bytes[tier] = times(asked.bytes[tier], factor);
  return choice;
}

std::vector<PrefixChoice> choices_of(const PrefixTuneRequest& request) {
  PrefixChoice asked{.name = "asked"};
  for (const PrefixTier& tier : request.tiers) asked.bytes.push_back(tier.bytes);
  const std::size_t tiers = asked.bytes.size();
  std::vector<PrefixChoice> choices{asked};
  for (std::size_t tier = 0; tier < tiers; ++tier) {
    choices.push_back(larger(request, asked, tier, 2));
  }
  for (std::uint64_t factor = 4; factor <= most_times; factor *= 2) {
    choices.push_back(larger(request, asked, tiers - 1, factor));
  }
  if (tiers > 1) {
    PrefixChoice alone{.name = request.tiers.back().name + "_alone",
                       .bytes = std::vector<std::uint64_t>(tiers, 0),
                       .times = 0};
    alone.bytes.back() = std::accumulate(asked.bytes.begin(), asked.bytes.end(), std::uint64_t{0});
    choices.push_back(std::move(alone));
  }
  choices.push_back({.name = "unlimited",
                     .bytes = std::vector<std::uint64_t>(tiers, unlimited_bytes),
                     .times = 0});
  return choices;
}

/// Leaves out sizes of the lowest tier that half of such a size would do for.
void leave_out_idle(std::vector<PrefixChoice>& choices) {
  bool is_enough = false;
  std::erase_if(choices, [&](const PrefixChoice& choice) {
    if (choice.times < 2 || choice.tier + 1 < choice.bytes.size()) return false;
    const bool idle = is_enough && choice.times > 2;
    is_enough = is_enough || choice.figures.tiers.back().evicted == 0;
    return idle;
  });
}

Status check(const PrefixTuneRequest& request, const TraceHead& head, std::uint64_t chunk_bytes) {
  if (!head.prefixes) {
    return fail(Errc::invalid_argument,
                "{} is of no prefixes of requests: terrace trace convert --from mooncake makes one "
                "that is",
                request.trace.string());
  }
  if (request.tiers.empty()) return fail(Errc::invalid_argument, "no tier: name one");
  for (const PrefixTier& tier : request.tiers) {
    if (chunk_bytes > 0 && tier.bytes >= chunk_bytes) continue;
    return fail(Errc::invalid_argument,
                "{} of {} has no room for a chunk of {} tokens, which takes {}; give more",
                tier.name, format_size(tier.bytes), head.block_tokens, format_size(chunk_bytes));
  }
  return {};
}

Result<std::vector<PrefixTiers>> simulators(const PrefixTuneRequest& request,
                                            const PrefixTuneResult& result) {
  std::vector<PrefixTiers> all;
  for (const PrefixChoice& choice : result.choices) {
    PrefixTiersOptions options{.chunk_tokens = result.head.block_tokens,
                               .prefill_tokens_per_second = request.prefill_tokens_per_second};
    for (const std::uint64_t bytes : choice.bytes) {
      options.tiers.push_back(bytes / result.chunk_bytes);
    }
    TERRACE_ASSIGN(PrefixTiers tiers, PrefixTiers::create(options));
    all.push_back(std::move(tiers));
  }
  return all;
}

/// Returns the tokens of a selection, and puts its whole chunks into `chunks`.
std::uint64_t cut_chunks(const TraceHead& head, const TraceRecord& record,
                         std::vector<std::uint32_t>& chunks) {
  chunks.clear();
  std::uint64_t tokens = 0;
  for (const SelectedUnit& each : record.units) {
    const std::uint64_t its = each.rows / head.shape.kv_heads;
    tokens += its;
    if (its == head.block_tokens) chunks.push_back(each.unit);
  }
  return tokens;
}

void count_savings(const PrefixTuneRequest& request, PrefixChoice& choice) {
  for (std::size_t tier = 0; tier < request.tiers.size(); ++tier) {
    const auto tokens = static_cast<double>(choice.figures.tiers[tier].hit_tokens);
    const double loading = tokens * static_cast<double>(request.token_bytes) /
                           request.tiers[tier].load_bytes_per_second;
    choice.saved_seconds.push_back(tokens / request.prefill_tokens_per_second - loading);
  }
}

/// Returns how much more time a choice saves than what was asked for, as a share of the prefill.
double gain(const PrefixTuneResult& result, const PrefixChoice& choice) {
  const double more = choice.all_saved_seconds() - result.asked().all_saved_seconds();
  return more / result.prefill_seconds;
}

/// Finds twice of the tier that gains most by it. If neither gains enough, finds the smallest size
/// of the lowest tier with half of the gain of the largest: a set of prefixes that is used again
/// and again may be much larger than the file. Returns null if no size is worth it.
const PrefixChoice* larger_choice(const PrefixTuneResult& result) {
  const PrefixChoice* best = nullptr;
  double most = worth_it;
  double half_of_largest = 0;
  for (const PrefixChoice& choice : result.choices) {
    const double its = gain(result, choice);
    if (choice.times > 1) half_of_largest = std::max(half_of_largest, its / 2);
    if (choice.times != 2 || its < most) continue;
    most = its;
    best = &choice;
  }
  if (best != nullptr || 2 * half_of_largest < worth_it) return best;
  const auto enough = std::ranges::find_if(result.choices, [&](const PrefixChoice& choice) {
    return choice.times > 2 && gain(result, choice) >= half_of_largest;
  });
  return enough == result.choices.end() ? nullptr : &*enough;
}

}  // namespace

double PrefixChoice::all_saved_seconds() const noexcept {
  return std::accumulate(saved_seconds.begin(), saved_seconds.end(), 0.0);
}

Result<PrefixTuneResult> tune_prefixes(const PrefixTuneRequest& request) {
  TERRACE_ASSIGN(TraceReader reader, TraceReader::open(request.trace));
  PrefixTuneResult result{.head = reader.head(),
                          .chunk_bytes = reader.head().block_tokens * request.token_bytes};
  TERRACE_TRY(check(request, result.head, result.chunk_bytes));
  result.choices = choices_of(request);
  TERRACE_ASSIGN(std::vector<PrefixTiers> tiers, simulators(request, result));
  std::vector<std::uint32_t> chunks;
  TERRACE_TRY(reader.for_each([&](const TraceRecord& record) {
    if (record.kind != TraceRecord::Kind::selection || record.layer > 0) return;
    const std::uint64_t tokens = cut_chunks(result.head, record, chunks);
    if (record.arrival_ms) ++result.timed_requests;
    for (PrefixTiers& each : tiers) {
      each.apply({.arrival_ms = record.arrival_ms, .chunks = chunks, .tokens = tokens});
    }
    if (request.progress) request.progress(reader.progress());
  }));
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    result.choices[i].figures = tiers[i].figures();
    count_savings(request, result.choices[i]);
  }
  leave_out_idle(result.choices);
  result.prefill_seconds =
      static_cast<double>(result.asked().figures.tokens) / request.prefill_tokens_per_second;
  if (result.asked().figures.requests == 0) {
    return fail(Errc::invalid_argument, "{}: holds no request", request.trace.string());
  }
  return result;
}

const PrefixChoice& recommended(const PrefixTuneResult& result) {
  const PrefixChoice* const larger = larger_choice(result);
  return larger == nullptr ? result.asked() : *larger;
}

std::string recommend(const PrefixTuneRequest& request, const PrefixTuneResult& result) {
  if (result.unlimited().figures.hit_tokens() == 0) {
    return "Store no prefixes: no request begins as one before it for a whole chunk.";
  }
  const PrefixTier& lowest = request.tiers.back();
  const double loaded = lowest.load_bytes_per_second / static_cast<double>(request.token_bytes);
  if (loaded <= request.prefill_tokens_per_second) {
    return fmt::format(
        "Take a faster {}: it loads {:.0f} tokens a second, and a prefill computes {:.0f}.",
        lowest.name, loaded, request.prefill_tokens_per_second);
  }
  const PrefixChoice* const best = larger_choice(result);
  std::string verdict = "Keep these sizes";
  if (best != nullptr) {
    verdict = fmt::format("Make {} {} times as large", request.tiers[best->tier].name, best->times);
  }
  std::string gains;
  for (const PrefixChoice& choice : result.choices) {
    if (choice.times != 2 && &choice != best) continue;
    gains +=
        fmt::format("{} times the {}{} {:.1f} %, ", choice.times, request.tiers[choice.tier].name,
                    gains.empty() ? " saves" : "", 100 * gain(result, choice));
  }
  return fmt::format("{}: {}and no limits {:.1f} % more of the prefill's time.", verdict, gains,
                     100 * gain(result, result.unlimited()));
}

}  // namespace terrace::tuning
