// The costs of steps: a link and the time of a layer's compute, and the clock that adds them up.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/result.hpp"
#include "terrace/offload/link.hpp"
#include "terrace/runtime/machine_profile.hpp"
#include "terrace/tuning/trace.hpp"

namespace terrace::tuning {

/// The host's time for upkeep of a cache, for a layer's step that wants rows of some units.
struct UpkeepCosts {
  double layer_seconds = 0;
  double row_seconds = 0;   ///< to find a row's unit
  double unit_seconds = 0;  ///< to look it up, and to decide about it

  [[nodiscard]] double seconds(std::uint64_t layers, std::uint64_t rows,
                               std::uint64_t units) const noexcept {
    return static_cast<double>(layers) * layer_seconds + static_cast<double>(rows) * row_seconds +
           static_cast<double>(units) * unit_seconds;
  }
};

/// Costs by the unit of the cache. Rows and units are counted without a cache, too.
struct UpkeepTable {
  UpkeepCosts none;
  UpkeepCosts blocks;
  UpkeepCosts clusters;
  UpkeepCosts rows;

  [[nodiscard]] const UpkeepCosts& of(const CacheOptions& cache) const noexcept;
};

/// Returns what was measured once (decision docs/decisions/0046), for traces of runs that had no
/// cache to measure it on.
UpkeepTable usual_upkeep() noexcept;

/// Returns the usual host's time, per token of a trace, for the upkeep of a cache with the same
/// counts. Unit: seconds.
double usual_seconds(const CacheOptions& cache, const CacheCounters& counted, const TraceEnd& end);

/// Times of one layer of one step, by what hides which transfer.
struct StepCosts {
  offload::LinkOptions link;
  double select_seconds = 0;  ///< before a layer's misses are known
  double attend_seconds = 0;  ///< after they are there
  UpkeepTable upkeep;         ///< zero where no host was measured
};

struct CostPreset {
  std::string_view name;
  std::string_view meaning;
  double link_bytes_per_second;
  double device_bytes_per_second;  ///< memory of the device
};

/// Returns the presets: two links and three devices.
std::span<const CostPreset> cost_presets() noexcept;

/// Errors: invalid_argument, with the nearest name and all there are.
Result<CostPreset> find_cost_preset(std::string_view name);

/// Returns the link of a preset, and nothing that has to be measured.
MachineProfile preset_profile(const CostPreset& preset);

/// Returns the costs of a preset for a trace: its model's weights and the rows it attends to are
/// read once a step at the speed of device memory. Upkeep is 0: its unhidden part at a step's end
/// depends on the host, which a preset does not describe. Errors: those of find_cost_preset.
Result<StepCosts> preset_costs(std::string_view name, const TraceHead& head);

/// Returns the costs of the machine that recorded the trace, over another link. The recorded run's
/// upkeep is taken out of its compute, and gives this host's speed of upkeep for any cache.
/// Errors: invalid_argument: the trace was not recorded from a run.
Result<StepCosts> recorded_costs(const TraceHead& head, const TraceEnd& end,
                                 const offload::LinkOptions& link);

/// Returns the costs of a trace over a measured machine's link: with the times of the run that was
/// recorded, or, of a trace without any, as those of a preset, with the machine's memory_read.
/// Errors: invalid_argument: the profile lacks what is needed, with what measures it.
Result<StepCosts> profile_costs(const MachineProfile& profile, const TraceHead& head,
                                const TraceEnd& end);

/// The bytes that a step moves beside the rows of its cache.
struct StepTransfers {
  std::uint64_t index = 0;    ///< bytes to the device
  std::uint64_t to_host = 0;  ///< bytes of rows and selected ids
};

/// Adds up the time of steps. Transfers to the device share the link in the order in which they are
/// asked for: a layer's misses hold it up; refills, when the step has ended, only that layer's next
/// step; codes every layer's. Transfers to the host use the other direction alone, batch by batch
/// of layers as soon as they have selected; after them the host does the cache's upkeep, enqueues
/// refills and ends the step.
class StepClock {
 public:
  StepClock(const StepCosts& costs, std::size_t layers);

  void layer(std::size_t layer, std::uint64_t demand_bytes, std::uint64_t refill_bytes,
             double upkeep_seconds = 0);
  void end_step(const StepTransfers& transfers);

  [[nodiscard]] double seconds() const noexcept { return now_; }

 private:
  double transfer(std::uint64_t bytes);
  void leave_for_host(std::uint64_t bytes);

  StepCosts costs_;
  double latency_ = 0;
  double seconds_per_byte_ = 0;
  double now_ = 0;
  double link_free_ = 0;  ///< to the device
  double link_to_host_free_ = 0;
  double upkeep_ = 0;    ///< of this step's layers
  double uploaded_ = 0;  ///< when the codes of the step before are there
  std::size_t layers_done_ = 0;
  std::vector<double> batches_;         ///< when the layers of each had selected
  std::vector<std::uint64_t> refills_;  ///< of each layer of this step, bytes
  std::vector<double> refilled_;        ///< when each layer's refills are there
};

}  // namespace terrace::tuning
