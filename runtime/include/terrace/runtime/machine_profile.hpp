// The figures measured on a machine: one versioned YAML file that benchmarks write and that
// planning, simulation and reports read. Each benchmark replaces its own section and keeps all
// other sections.
//
//   version: 1
//   date: 2026-03-01
//   cpu: AMD EPYC 7763
//   isa: avx2
//   compute:
//     - setting: pqcache, 2 subspaces of 6 bits; layers of 256 and 704, 4 query heads on 2 ...
//       compute: [1e-4, 2e-6, 3e-11]
//       ...
//   host: {memory_read: 2.1e+10}
//   link: {bandwidth: 2.5e+10, latency: 1e-05, switch_over: 65536}
//   nvme: {read: 3.2e+09, write: 1.4e+09, latency: 8e-05}
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/policies/iteration_planner.hpp"

namespace terrace {

/// The link between device and host, as the pcie benchmark finds it.
struct LinkCosts {
  double bandwidth = 0;  ///< B/s, host to device, large copies
  double latency = 0;    ///< seconds until a copy starts
  /// Bytes from which on scattered pieces are as fast by a copy engine as by a kernel; 0 = not
  /// measured.
  double switch_over = 0;
};

/// The file of tier.nvme.path, as the nvme benchmark finds it.
struct NvmeCosts {
  double read = 0;     ///< B/s of pages through the store, with their checksums
  double write = 0;    ///< B/s, with checksums and the journal
  double latency = 0;  ///< seconds until one small page is there
};

struct MachineProfile {
  std::string date = {};  ///< of the newest section: "2026-03-01"
  std::string cpu = {};
  std::string isa = {};
  /// The planner's fits, by the setting they hold for (cost_setting), on this CPU; no other may use
  /// them.
  std::map<std::string, policies::CostModel, std::less<>> compute = {};
  std::map<std::string, double, std::less<>> host = {};  ///< B/s by the benchmark's row
  std::optional<LinkCosts> link = {};
  std::optional<NvmeCosts> nvme = {};

  /// Reads a profile.
  ///
  /// Errors   io_error: the file cannot be read; invalid_argument: nothing in it, no YAML, another
  ///          version, an unknown or missing field, one that is there twice, a figure that is
  ///          negative or not finite, each with its line
  [[nodiscard]] static Result<MachineProfile> read(const std::string& path);

  /// Reads YAML text; `name` stands for it in messages.
  [[nodiscard]] static Result<MachineProfile> parse(std::string_view yaml, std::string_view name);

  /// Returns the profile as YAML that parse() reads back to the same figures.
  [[nodiscard]] std::string to_yaml() const;
};

}  // namespace terrace
