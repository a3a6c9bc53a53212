#include "counter_file.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "terrace/core/replace_file.hpp"

namespace terrace {
namespace {

constexpr Duration between_writes = std::chrono::seconds{1};

/// A count of sequences. Those of one family follow each other, and have a label each.
struct CountMetric {
  std::string_view family;
  std::string_view label;  ///< name="value"; empty = the family has one count
  std::string_view help;   ///< of the family, at its first count
  double (*value)(const SequenceCounters& counters);
};

template <auto member>
double count(const SequenceCounters& counters) {
  return static_cast<double>(counters.*member);
}
template <auto group, auto member>
double count_in(const SequenceCounters& counters) {
  return static_cast<double>(counters.*group.*member);
}
template <WaitReason reason>
double waited(const SequenceCounters& counters) {
  return seconds(counters.waits[static_cast<std::size_t>(reason)]);
}
template <auto member>
double time(const SequenceCounters& counters) {
  return seconds(counters.*member);
}

using All = SequenceCounters;
template <auto member>
constexpr auto in_link = count_in<&All::bytes, member>;
template <auto member>
constexpr auto in_cache = count_in<&All::cache, member>;

constexpr std::array count_metrics{
    CountMetric{"terrace_steps_total", "", "Steps, each counted by every sequence in it.",
                count<&All::steps>},
    CountMetric{"terrace_prompt_steps_total", "", "Steps with tokens of prompts.",
                count<&All::prompt_steps>},
    CountMetric{"terrace_exact_steps_total", "",
                "Steps of decoding that attended to all tokens, as an index was late.",
                count<&All::exact_steps>},
    CountMetric{"terrace_attended_entries_total", "", "Entries attended to, of all lists.",
                count<&All::attended>},
    CountMetric{"terrace_attended_lists_total", "", "Lists of entries attended to.",
                count<&All::lists>},
    CountMetric{"terrace_index_builds_total", "", "Indexes of a layer that were built.",
                count<&All::builds>},
    CountMetric{"terrace_index_refreshes_total", "", "Indexes that took over from older ones.",
                count<&All::refreshes>},
    CountMetric{"terrace_cache_rows_total", "result=\"hit\"",
                "Rows that steps selected, by where they were.",
                in_cache<&CacheCounters::rows_hit>},
    CountMetric{"terrace_cache_rows_total", "result=\"missed\"", "",
                in_cache<&CacheCounters::rows_missed>},
    CountMetric{"terrace_cache_rows_total", "result=\"resident\"", "",
                in_cache<&CacheCounters::rows_resident>},
    CountMetric{"terrace_cache_units_total", "event=\"admitted\"",
                "Blocks, clusters or rows of the cache.", in_cache<&CacheCounters::admitted>},
    CountMetric{"terrace_cache_units_total", "event=\"adopted\"", "",
                in_cache<&CacheCounters::adopted>},
    CountMetric{"terrace_cache_units_total", "event=\"evicted\"", "",
                in_cache<&CacheCounters::evicted>},
    CountMetric{"terrace_cache_units_total", "event=\"refused\"", "",
                in_cache<&CacheCounters::refused>},
    CountMetric{"terrace_link_bytes_total", "reason=\"offload\"", "Bytes between device and host.",
                in_link<&LinkBytes::offload>},
    CountMetric{"terrace_link_bytes_total", "reason=\"demand\"", "", in_link<&LinkBytes::demand>},
    CountMetric{"terrace_link_bytes_total", "reason=\"refill\"", "", in_link<&LinkBytes::refill>},
    CountMetric{"terrace_link_bytes_total", "reason=\"streamed\"", "",
                in_link<&LinkBytes::streamed>},
    CountMetric{"terrace_link_bytes_total", "reason=\"index\"", "", in_link<&LinkBytes::index>},
    CountMetric{"terrace_store_bytes_total", "direction=\"read\"",
                "Bytes between the host and the store below it.",
                count_in<&All::store, &StoreBytes::read>},
    CountMetric{"terrace_store_bytes_total", "direction=\"written\"", "",
                count_in<&All::store, &StoreBytes::written>},
    CountMetric{"terrace_wait_seconds_total", "reason=\"rows\"", "Time that calls waited.",
                waited<WaitReason::rows>},
    CountMetric{"terrace_wait_seconds_total", "reason=\"compute\"", "",
                waited<WaitReason::compute>},
    CountMetric{"terrace_wait_seconds_total", "reason=\"refill\"", "", waited<WaitReason::refill>},
    CountMetric{"terrace_wait_seconds_total", "reason=\"index\"", "", waited<WaitReason::index>},
    CountMetric{"terrace_wait_seconds_total", "reason=\"upload\"", "", waited<WaitReason::upload>},
    CountMetric{"terrace_wait_seconds_total", "reason=\"copy\"", "", waited<WaitReason::copy>},
    CountMetric{"terrace_wait_seconds_total", "reason=\"rest\"", "", waited<WaitReason::rest>},
    CountMetric{"terrace_wait_seconds_total", "reason=\"retention\"", "",
                waited<WaitReason::retention>},
    CountMetric{"terrace_cache_upkeep_seconds_total", "", "Host time of the cache's upkeep.",
                time<&All::upkeep>},
    CountMetric{"terrace_attention_mass_sum_total", "", "Sum of the samples, each from 0 to 1.",
                count<&All::attention_mass>},
    CountMetric{"terrace_attention_mass_samples_total", "",
                "Steps whose attention mass was sampled.", count<&All::mass_samples>}};

/// Writes metrics, with a head for each family.
class MetricsText {
 public:
  void add(std::string_view family, std::string_view label, std::string_view help, double value) {
    if (family != family_) {
      const std::string_view kind = family.ends_with("_total") ? "counter" : "gauge";
      fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", family, help,
                     kind);
      family_ = family;
    }
    const bool has_label = !label.empty();
    fmt::format_to(std::back_inserter(text_), "{}{}{}{} {}\n", family, has_label ? "{" : "", label,
                   has_label ? "}" : "", value);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::string_view family_;
};

void add_memory(const RuntimeGauges& gauges, MetricsText& to) {
  constexpr std::string_view in_use = "terrace_memory_in_use_bytes";
  constexpr std::string_view limit = "terrace_memory_limit_bytes";
  constexpr std::string_view device = "tier=\"device\"";
  constexpr std::string_view host = "tier=\"host\"";
  const auto number = [](std::size_t bytes) { return static_cast<double>(bytes); };
  to.add(in_use, device, "Bytes that the runtime's backend has taken.",
         number(gauges.device.in_use));
  to.add(in_use, host, "", number(gauges.host.in_use));
  const std::string_view help =
      "Bytes that the runtime's backend may take, where there is a limit.";
  for (const auto& [tier, usage] :
       {std::pair{device, gauges.device}, std::pair{host, gauges.host}}) {
    const bool is_limited = usage.limit != std::numeric_limits<std::size_t>::max();
    if (is_limited) to.add(limit, tier, help, number(usage.limit));
  }
}

void add_prefixes(const PrefixCounters& prefixes, MetricsText& to) {
  const PrefixMisses& misses = prefixes.misses;
  const std::array<std::pair<std::string_view, std::uint64_t>, 9> outcomes{
      {{"outcome=\"hit\"", prefixes.hits},
       {"outcome=\"partial\"", prefixes.partial},
       {"outcome=\"never_stored\"", misses.never_stored},
       {"outcome=\"evicted\"", misses.evicted},
       {"outcome=\"corrupt\"", misses.corrupt},
       {"outcome=\"late\"", misses.late},
       {"outcome=\"other_namespace\"", misses.other_namespace},
       {"outcome=\"no_room\"", misses.no_room},
       {"outcome=\"slower\"", misses.slower}}};
  for (const auto& [label, value] : outcomes) {
    to.add("terrace_prefix_look_ups_total", label,
           "Look-ups of stored prefixes, by how they ended.", static_cast<double>(value));
  }
  to.add("terrace_prefix_tokens_total", "result=\"asked\"", "Tokens of these look-ups.",
         static_cast<double>(prefixes.tokens_asked));
  to.add("terrace_prefix_tokens_total", "result=\"found\"", "",
         static_cast<double>(prefixes.tokens_found));
}

}  // namespace

CounterFile::CounterFile(std::string path, const Clock& clock)
    : path_(std::move(path)), clock_(clock), sums_(count_metrics.size()) {}

Result<std::unique_ptr<CounterFile>> CounterFile::open(std::string path, const Clock& clock,
                                                       Gauges gauges) {
  std::unique_ptr<CounterFile> file(new CounterFile(std::move(path), clock));
  const Status written = replace_file(file->path_, file->text(gauges()));
  if (!written) return tl::unexpected(written.error().while_doing("stats.file"));
  file->written_ = clock.now();
  file->is_there_ = true;
  return file;
}

CounterFile::~CounterFile() {
  if (!is_there_) return;
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void CounterFile::add(const SequenceCounters& now, SequenceCounters& added) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < count_metrics.size(); ++i) {
    sums_[i] += count_metrics[i].value(now) - count_metrics[i].value(added);
  }
  added = now;
}

void CounterFile::write_if_due(Gauges gauges) {
  const std::unique_lock lock(writing_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread is writing it
  const TimePoint now = clock_.now();
  if (now - written_ < between_writes) return;
  written_ = now;
  static_cast<void>(replace_file(path_, text(gauges())));
}

std::string CounterFile::text(const RuntimeGauges& gauges) const {
  MetricsText text;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count_metrics.size(); ++i) {
      const CountMetric& metric = count_metrics[i];
      text.add(metric.family, metric.label, metric.help, sums_[i]);
    }
  }
  text.add("terrace_sequences", "", "Sequences that are open.",
           static_cast<double>(sequences_.load(std::memory_order_relaxed)));
  add_memory(gauges, text);
  add_prefixes(gauges.prefixes, text);
  return text.take();
}

}  // namespace terrace
