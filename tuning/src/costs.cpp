#include "terrace/tuning/costs.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "terrace/core/config.hpp"
#include "terrace/core/nearest_name.hpp"
#include "terrace/runtime/options.hpp"

namespace terrace::tuning {
namespace {

// Links: what large copies reach on x16. Devices: 16 GB of weights take 8.0, 4.8 and 3.35 ms.
constexpr double pcie4 = 26e9;
constexpr double pcie5 = 55.6e9;
constexpr double a100 = 2.0e12;
constexpr double h100 = 3.33e12;
constexpr double h200 = 4.78e12;

constexpr std::array presets{
    CostPreset{"pcie4-a100", "A100 on PCIe 4 x16", pcie4, a100},
    CostPreset{"pcie4-h100", "H100 on PCIe 4 x16", pcie4, h100},
    CostPreset{"pcie4-h200", "H200 on PCIe 4 x16", pcie4, h200},
    CostPreset{"pcie5-a100", "A100 on PCIe 5 x16", pcie5, a100},
    CostPreset{"pcie5-h100", "H100 on PCIe 5 x16", pcie5, h100},
    CostPreset{"pcie5-h200", "H200 on PCIe 5 x16", pcie5, h200},
};

// A copy's start-up, and the launch of a kernel.
constexpr Duration copy_latency = std::chrono::microseconds{6};
constexpr double launch_seconds = 1e-6;
constexpr double select_launches = 3;
constexpr double layer_launches = 8;

// Upkeep of pqcache, wave and clusterkv at 4,096 and 8,192 tokens, fitted (decision 0046).
constexpr UpkeepCosts counting{.row_seconds = 8e-9, .unit_seconds = 30e-9};
constexpr UpkeepCosts upkeep_of_blocks{
    .layer_seconds = 5e-6, .row_seconds = 8e-9, .unit_seconds = 70e-9};
constexpr UpkeepCosts upkeep_of_clusters{
    .layer_seconds = 3e-6, .row_seconds = 18e-9, .unit_seconds = 400e-9};
// The device keeps rows by itself: the host adds up what it says of each KV head.
constexpr UpkeepCosts upkeep_of_rows{.layer_seconds = 5e-7};

UpkeepCosts scaled(const UpkeepCosts& costs, double factor) {
  return {.layer_seconds = factor * costs.layer_seconds,
          .row_seconds = factor * costs.row_seconds,
          .unit_seconds = factor * costs.unit_seconds};
}

bool has_times(const TraceEnd& end) { return end.run && end.run->decode_seconds > 0; }

/// Weights and the rows attended to are read once a step.
StepCosts costs_of_reading(const TraceHead& head, const offload::LinkOptions& link,
                           double bytes_per_second) {
  const auto layers = static_cast<double>(head.shape.layers);
  const auto attended = static_cast<double>(
      (head.sink_tokens + head.window_tokens + head.selected_tokens) * head.shape.token_bytes());
  const double read = static_cast<double>(head.weight_bytes) / layers + attended;
  return {.link = link,
          .select_seconds = select_launches * launch_seconds,
          .attend_seconds = layer_launches * launch_seconds + read / bytes_per_second};
}

}  // namespace

const UpkeepCosts& UpkeepTable::of(const CacheOptions& cache) const noexcept {
  if (cache.none()) return none;
  switch (cache.granularity) {
    case CacheGranularity::row:
      return rows;
    case CacheGranularity::cluster:
      return clusters;
    case CacheGranularity::block:
      break;
  }
  return blocks;
}

UpkeepTable usual_upkeep() noexcept {
  return {.none = counting,
          .blocks = upkeep_of_blocks,
          .clusters = upkeep_of_clusters,
          .rows = upkeep_of_rows};
}

std::span<const CostPreset> cost_presets() noexcept { return presets; }

Result<CostPreset> find_cost_preset(std::string_view name) {
  const auto* const found = std::ranges::find(presets, name, &CostPreset::name);
  if (found != presets.end()) return *found;
  std::vector<std::string_view> names;
  names.reserve(std::size(presets));
  for (const CostPreset& preset : presets) names.push_back(preset.name);
  const std::string_view nearest = nearest_name(name, names);
  return fail(Errc::invalid_argument, "profile '{}': no such file, and no preset; {}presets are {}",
              shown(name), nearest.empty() ? "" : fmt::format("did you mean {}? ", nearest),
              fmt::join(names, ", "));
}

MachineProfile preset_profile(const CostPreset& preset) {
  return {.cpu = std::string(preset.meaning),
          .link = LinkCosts{.bandwidth = preset.link_bytes_per_second,
                            .latency = terrace::seconds(copy_latency)}};
}

Result<StepCosts> preset_costs(std::string_view name, const TraceHead& head) {
  TERRACE_ASSIGN(const CostPreset preset, find_cost_preset(name));
  return costs_of_reading(
      head, {.bandwidth_bytes_per_second = preset.link_bytes_per_second, .latency = copy_latency},
      preset.device_bytes_per_second);
}

double usual_seconds(const CacheOptions& cache, const CacheCounters& counted, const TraceEnd& end) {
  const std::uint64_t rows = counted.rows_hit + counted.rows_missed + counted.rows_resident;
  const std::uint64_t units = counted.blocks_hit + counted.blocks_missed;
  return usual_upkeep().of(cache).seconds(end.layer_steps, rows, units) /
         static_cast<double>(std::max<std::uint64_t>(1, end.steps));
}

Result<StepCosts> recorded_costs(const TraceHead& head, const TraceEnd& end,
                                 const offload::LinkOptions& link) {
  if (!has_times(end)) {
    return fail(Errc::invalid_argument,
                "the trace holds no times of a run: name a preset or a measured machine with "
                "--profile");
  }
  const auto layers = static_cast<double>(head.shape.layers);
  const double usual = usual_seconds(head.cache, end.run->cache, end);
  // A run without a cache has no such measurement, nor has one whose device kept rows by itself. In
  // other runs, all of it may have been hidden.
  const bool of_rows = head.cache.granularity == CacheGranularity::row;
  const bool measured = !head.cache.none() && !of_rows && usual > 0;
  const double speed = measured ? end.run->upkeep_seconds / usual : 1;
  const double upkeep = measured ? end.run->upkeep_seconds : usual;
  const double attend =
      end.run->decode_seconds - end.run->link_seconds - end.run->select_seconds - upkeep;
  const UpkeepTable usually = usual_upkeep();
  return StepCosts{.link = link,
                   .select_seconds = end.run->select_seconds / layers,
                   .attend_seconds = std::max(0.0, attend) / layers,
                   .upkeep = {.none = scaled(usually.none, speed),
                              .blocks = scaled(usually.blocks, speed),
                              .clusters = scaled(usually.clusters, speed),
                              .rows = scaled(usually.rows, speed)}};
}

Result<StepCosts> profile_costs(const MachineProfile& profile, const TraceHead& head,
                                const TraceEnd& end) {
  if (!profile.link) {
    return fail(Errc::invalid_argument,
                "no link was measured: terrace bench pcie --write-profile adds it; or name a "
                "preset");
  }
  const offload::LinkOptions link{.bandwidth_bytes_per_second = profile.link->bandwidth,
                                  .latency = std::chrono::duration_cast<Duration>(
                                      std::chrono::duration<double>(profile.link->latency))};
  if (has_times(end)) return recorded_costs(head, end, link);
  const auto memory = profile.host.find("memory_read");
  if (memory != profile.host.end() && memory->second > 0) {
    return costs_of_reading(head, link, memory->second);
  }
  return fail(Errc::invalid_argument,
              "the trace holds no times of a run, and the profile no memory_read to tell them by: "
              "terrace bench kernels --write-profile adds it; or name a preset");
}

StepClock::StepClock(const StepCosts& costs, std::size_t layers)
    : costs_(costs),
      latency_(terrace::seconds(costs.link.latency)),
      refills_(layers),
      refilled_(layers) {
  const double bandwidth = costs.link.bandwidth_bytes_per_second;
  seconds_per_byte_ = bandwidth > 0 ? 1 / bandwidth : 0;
}

double StepClock::transfer(std::uint64_t bytes) {
  if (bytes == 0) return now_;
  link_free_ =
      std::max(link_free_, now_) + latency_ + static_cast<double>(bytes) * seconds_per_byte_;
  return link_free_;
}

void StepClock::layer(std::size_t layer, std::uint64_t demand_bytes, std::uint64_t refill_bytes,
                      double upkeep_seconds) {
  now_ = std::max({now_, refilled_[layer], uploaded_}) + costs_.select_seconds;
  if (layers_done_++ % layers_per_batch == 0) batches_.emplace_back();
  batches_.back() = now_;
  now_ = std::max(now_, transfer(demand_bytes));
  now_ += costs_.attend_seconds;
  refills_[layer] = refill_bytes;
  upkeep_ += upkeep_seconds;
}

void StepClock::leave_for_host(std::uint64_t bytes) {
  const double each = static_cast<double>(bytes) / static_cast<double>(batches_.size());
  for (const double ready : batches_) {
    link_to_host_free_ = std::max(link_to_host_free_, ready) + latency_ + each * seconds_per_byte_;
  }
  now_ = std::max(now_, link_to_host_free_);
}

void StepClock::end_step(const StepTransfers& transfers) {
  // Layers that select nothing compute all the same.
  const std::size_t others = refilled_.size() - std::min(layers_done_, refilled_.size());
  now_ += static_cast<double>(others) * (costs_.select_seconds + costs_.attend_seconds);
  layers_done_ = 0;
  if (transfers.to_host > 0) leave_for_host(transfers.to_host);
  now_ += std::exchange(upkeep_, 0);
  batches_.clear();
  for (std::size_t layer = 0; layer < refilled_.size(); ++layer) {
    refilled_[layer] = transfer(std::exchange(refills_[layer], 0));
  }
  uploaded_ = transfer(transfers.index);
}

}  // namespace terrace::tuning
