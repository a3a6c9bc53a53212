#include "metrics.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <string_view>
#include <vector>

namespace terrace::apps {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

struct Metric {
  std::string_view counter;  ///< of the daemon; one that ends with a dot is of all with that begin
  std::string_view name;     ///< metrics of one name stand together
  std::string_view label;    ///< its name; empty = none
  std::string_view value;    ///< of the label; empty = the rest of the counter's name
  MetricType type;
  std::string_view help;
  double unit = 1;  ///< of the counter, in that of the metric
};

constexpr auto counter = MetricType::Counter;
constexpr auto gauge = MetricType::Gauge;

constexpr std::array metrics{
    Metric{"look_ups.", "terrace_look_ups_total", "outcome", "", counter,
           "Look-ups, by how they ended."},
    Metric{"tokens.asked", "terrace_tokens_asked_total", "", "", counter,
           "Tokens that look-ups asked for."},
    Metric{"tokens.found", "terrace_tokens_found_total", "", "", counter,
           "Tokens that look-ups found."},
    Metric{"chunks", "terrace_chunks", "", "", gauge, "Chunks in the file."},
    Metric{"chunks.bytes", "terrace_chunk_bytes", "state", "resident", gauge,
           "Bytes of chunks in the file."},
    Metric{"chunks.in_flight_bytes", "terrace_chunk_bytes", "state", "in_flight", gauge, ""},
    Metric{"chunks.pinned_bytes", "terrace_chunk_bytes", "state", "pinned", gauge, ""},
    Metric{"chunks.published", "terrace_chunks_published_total", "", "", counter,
           "Chunks written."},
    Metric{"chunks.evicted", "terrace_chunks_evicted_total", "", "", counter, "Chunks evicted."},
    Metric{"file.used_bytes", "terrace_file_bytes", "state", "used", gauge, "Bytes of the file."},
    Metric{"file.free_bytes", "terrace_file_bytes", "state", "free", gauge, ""},
    Metric{"file.corrupt", "terrace_file_corrupt_total", "", "", counter,
           "Reads of the file that found other bytes than those written, and pages lost."},
    Metric{"file.lost", "terrace_file_lost_pages", "", "", gauge,
           "Pages that were not in the file any more when the daemon began."},
    Metric{"file.bad_places", "terrace_file_bad_places", "", "", gauge,
           "Places of the file that the disk could not read or write."},
    Metric{"file.writes", "terrace_file_writes", "", "", gauge,
           "1 while the file can be written; 0 once an error of the disk has ended writing."},
    Metric{"remote.", "terrace_remote_chunks_total", "event", "", counter,
           "Chunks that were written to servers, read from them, left out or dropped."},
    Metric{"memory.bytes", "terrace_memory_bytes", "", "", gauge,
           "Bytes of segments that clients read."},
    Metric{"memory.parts", "terrace_memory_parts", "", "", gauge, "Parts in memory."},
    Metric{"memory.part_bytes", "terrace_memory_part_bytes", "state", "resident", gauge,
           "Bytes of parts."},
    Metric{"memory.held_bytes", "terrace_memory_part_bytes", "state", "held", gauge, ""},
    Metric{"memory.evicted", "terrace_memory_parts_evicted_total", "", "", counter,
           "Parts evicted."},
    Metric{"memory.segments_retired", "terrace_memory_segments_retired_total", "", "", counter,
           "Segments that went to another tenant."},
    Metric{"parts.read", "terrace_parts_read_total", "", "", counter,
           "Parts that clients asked for."},
    Metric{"parts.from_memory", "terrace_parts_from_memory_total", "", "", counter,
           "Parts that were in memory when clients asked for them."},
    Metric{"parts.bytes", "terrace_parts_read_bytes_total", "", "", counter,
           "Bytes of parts asked for."},
    Metric{"clients", "terrace_clients", "", "", gauge, "Clients that are connected."},
    Metric{"clients.connected", "terrace_clients_connected_total", "", "", counter, "Connections."},
    Metric{"clients.refused", "terrace_clients_refused_total", "", "", counter,
           "Connections refused."},
    Metric{"leases", "terrace_leases", "", "", gauge, "Leases of clients."},
    Metric{"leases.expired", "terrace_leases_expired_total", "", "", counter,
           "Leases and reservations that were not used in time."},
    Metric{"reservations", "terrace_reservations", "", "", gauge,
           "Chunks that clients are writing."},
    Metric{"tenants", "terrace_tenants", "", "", gauge, "Tenants seen since the start."},
    Metric{"mass.samples", "terrace_attention_mass_samples_total", "", "", counter,
           "Steps of clients whose attention mass was sampled."},
    Metric{"mass.millionths", "terrace_attention_mass_sum_total", "", "", counter,
           "Sum of the samples, each from 0 to 1.", 1e-6},
    Metric{"requests", "terrace_requests_total", "", "", counter, "Requests of clients."},
    Metric{"requests.failed", "terrace_requests_failed_total", "", "", counter,
           "Requests that failed."},
};

/// Returns the metric of a counter, or null.
const Metric* metric_of(std::string_view name) {
  for (const Metric& metric : metrics) {
    const bool of_many = metric.counter.ends_with('.');
    if (of_many ? name.starts_with(metric.counter) : name == metric.counter) return &metric;
  }
  return nullptr;
}

prometheus::ClientMetric sample_of(const Metric& metric, const node::DaemonCounter& counted) {
  prometheus::ClientMetric sample;
  if (!metric.label.empty()) {
    const std::string_view rest = std::string_view(counted.name).substr(metric.counter.size());
    sample.label = {
        {std::string(metric.label), std::string(metric.value.empty() ? rest : metric.value)}};
  }
  const double value = static_cast<double>(counted.value) * metric.unit;
  sample.counter.value = sample.gauge.value = value;
  return sample;
}

}  // namespace

std::string metrics_text(std::span<const node::DaemonCounter> counters) {
  std::vector<MetricFamily> families;
  for (const Metric& metric : metrics) {
    if (families.empty() || families.back().name != metric.name) {
      families.push_back({.name = std::string(metric.name),
                          .help = std::string(metric.help),
                          .type = metric.type,
                          .metric = {}});
    }
    for (const node::DaemonCounter& counted : counters) {
      if (metric_of(counted.name) == &metric) {
        families.back().metric.push_back(sample_of(metric, counted));
      }
    }
  }
  std::erase_if(families, [](const MetricFamily& family) { return family.metric.empty(); });
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace terrace::apps
