#include "doctor_checks.hpp"

#include <fmt/ranges.h>
#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "backend_choice.hpp"
#include "command.hpp"
#include "config_check.hpp"
#include "doctor_cuda.hpp"
#include "doctor_tiers.hpp"
#include "machine.hpp"
#include "program_files.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/offload/container_limits.hpp"
#include "terrace/runtime/config.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {
namespace {

namespace fs = std::filesystem;
struct CpuLevel {
  std::string_view name;  ///< as compilers say it
  bool narrow = false;    ///< host kernels have but short vectors
};

CpuLevel cpu_level() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return {"x86-64-v4"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {"x86-64-v3"};
  return {__builtin_cpu_supports("sse4.2") ? "x86-64-v2" : "x86-64", /*narrow=*/true};
#else
  return {"no x86-64"};
#endif
}

CheckResult check_cpu() {
  const Machine machine = read_machine();
  const CpuLevel level = cpu_level();
  CheckResult result{"cpu", CheckStatus::ok,
                     fmt::format("{}: {}, kernels use {}", machine.cpu, level.name, machine.isa),
                     ""};
  if (level.narrow) {
    result.status = CheckStatus::warn;
    result.advice = "attention on the host is several times slower without AVX2";
  }
  return result;
}

CheckResult check_numa() {
  const Machine machine = read_machine();
  return {"numa", CheckStatus::ok,
          fmt::format("{} core{}, {} NUMA node{}", machine.cores, machine.cores == 1 ? "" : "s",
                      machine.numa_nodes, machine.numa_nodes == 1 ? "" : "s"),
          ""};
}

CheckResult check_container(const Config& config) {
  const offload::ContainerLimits limits = offload::read_container_limits();
  const std::string memory =
      limits.memory_bytes ? format_size(*limits.memory_bytes) : std::string("no limit");
  const std::string cpus = limits.cpus ? fmt::format("{:.3g}", *limits.cpus) : std::string("all");
  CheckResult result{"container", CheckStatus::ok,
                     fmt::format("memory: {}; CPU time: {}", memory, cpus), ""};
  const auto threads =
      static_cast<double>(config.integer("threads.device") + config.integer("threads.host"));
  if (limits.cpus && threads > std::max(2.0, *limits.cpus)) {
    result.status = CheckStatus::warn;
    result.advice = fmt::format(
        "threads.device and threads.host are {:.0f} together, and are stopped for most of each "
        "period: give them no more than the CPU time that the container has",
        threads);
  }
  return result;
}

CheckResult check_huge_pages() {
  const std::string setting = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (setting.empty()) return {"huge_pages", CheckStatus::skip, "the kernel does not say", ""};
  if (setting.find("[never]") == std::string::npos)
    return {"huge_pages", CheckStatus::ok, setting, ""};
  return {"huge_pages", CheckStatus::warn, setting,
          "write madvise to /sys/kernel/mm/transparent_hugepage/enabled: gathers from host memory "
          "get faster"};
}

CheckResult check_pinned_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return {"pinned_memory", CheckStatus::ok, "unlimited", ""};
  constexpr std::size_t enough = std::size_t{1} << 30;
  const std::size_t bytes = limit.rlim_cur;
  if (bytes >= enough) return {"pinned_memory", CheckStatus::ok, format_size(bytes), ""};
  return {"pinned_memory", CheckStatus::warn, format_size(bytes),
          "raise it (ulimit -l unlimited) if host memory is to be locked for a device"};
}

CheckResult check_io_uring() {
  io_uring_params params{};
  const long ring = syscall(SYS_io_uring_setup, 1, &params);
  if (ring >= 0) {
    close(static_cast<int>(ring));
    return {"io_uring", CheckStatus::ok, "available", ""};
  }
  return {"io_uring", CheckStatus::warn, std::strerror(errno),
          "allow io_uring (kernel.io_uring_disabled, container profile) before KV goes to NVMe"};
}

CheckResult check_direct_io() {
  const Result<fs::path> temporary = temporary_folder();
  if (!temporary) {
    return {"direct_io", CheckStatus::warn, std::string(temporary.error().message()),
            "let TMPDIR name a folder, or unset it"};
  }
  return check_direct_io_in(temporary->string());
}

/// Returns the days since a date as profiles write it, "2026-03-01".
std::optional<std::chrono::days> days_since(const std::string& date) {
  std::tm parts{};
  const char* end = ::strptime(date.c_str(), "%Y-%m-%d", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const std::chrono::sys_days then = std::chrono::year{1900 + parts.tm_year} /
                                     std::chrono::month{static_cast<unsigned>(parts.tm_mon + 1)} /
                                     std::chrono::day{static_cast<unsigned>(parts.tm_mday)};
  return std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()) - then;
}

CheckResult check_profile(const Settings& settings) {
  const auto& [config, profile] = settings;
  const std::string& path = config.text("profile");
  if (path.empty()) {
    return {"profile", CheckStatus::skip, "none named; nothing is predicted from one",
            "measure this machine: `terrace bench kernels --write-profile FILE`, then name the "
            "file by --profile"};
  }
  if (!profile) {
    return {
        "profile", CheckStatus::fail, std::string(profile.error().message()),
        "name a profile that `terrace bench kernels --write-profile` wrote, or leave the key out"};
  }
  const MachineProfile& found = **profile;
  if (names_preset(config)) {
    return {"profile", CheckStatus::ok, fmt::format("preset {}: {}", path, found.cpu), ""};
  }
  if (!is_of(found, read_machine())) {
    return {"profile", CheckStatus::warn,
            fmt::format("measured on {} with {}, not here", found.cpu,
                        found.isa.empty() ? "an unknown isa" : found.isa),
            "measure this machine: `terrace bench kernels --write-profile FILE`"};
  }
  const std::optional<std::chrono::days> age = days_since(found.date);
  if (!age) {
    return {"profile", CheckStatus::warn, fmt::format("its date, '{}', is none", found.date),
            "measure the machine again"};
  }
  constexpr auto fresh = std::chrono::days{90};
  const std::string old = fmt::format("{} days old", age->count());
  if (*age > fresh) return {"profile", CheckStatus::warn, old, "measure the machine again"};
  if (!found.link) {
    return {"profile", CheckStatus::ok, fmt::format("{}, and says nothing of the link", old),
            fmt::format("add the link: `terrace bench pcie --write-profile {}`", path)};
  }
  if (!found.nvme && !config.text("tier.nvme.path").empty()) {
    return {"profile", CheckStatus::ok,
            fmt::format("{}, and says nothing of the disk of tier.nvme.path", old),
            fmt::format("add it: `terrace bench nvme --folder DIR --write-profile {}`", path)};
  }
  return {"profile", CheckStatus::ok, old, ""};
}

CheckResult check_backend(const Config& config) {
  const auto backend = find_backend(config);
  if (backend) return {"backend", CheckStatus::ok, describe(*backend), ""};
  return {"backend", CheckStatus::fail, std::string(backend.error().message()),
          config.is("backend", "auto") ? "mend that, or set backend to host"
                                       : "set backend to auto, which takes the best there is"};
}

/// Whether policies of the config in force exist, and its values fit together.
CheckResult check_config_in_force(const Config& config) {
  const Status usable = check_config(config);
  if (!usable) {
    return {"config", CheckStatus::fail, std::string(usable.error().message()),
            "`terrace config explain` says where each value comes from"};
  }
  std::size_t changed = 0;
  for (const ConfigKey& key : config_keys()) {
    if (is_set(config, key.name)) ++changed;
  }
  return {"config", CheckStatus::ok,
          fmt::format("valid; {} keys differ from the defaults", changed), ""};
}

/// Variables TERRACE_* that set nothing.
CheckResult check_variables() {
  const std::vector<std::string> unknown = unknown_variables(process_environment());
  if (unknown.empty()) return {"variables", CheckStatus::ok, "each TERRACE_* sets a key", ""};
  return {"variables", CheckStatus::warn, fmt::format("{}", fmt::join(unknown, "; ")),
          "rename or unset variables that set no key"};
}

}  // namespace

std::string_view to_string(CheckStatus status) noexcept {
  constexpr std::array<std::string_view, 4> words{"ok", "warn", "fail", "skip"};
  return words[static_cast<std::size_t>(status)];
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<CheckResult> run_checks(const Settings& settings) {
  const Config& config = settings.config;
  std::vector<CheckResult> results{
      check_cpu(),           check_numa(),     check_container(config), check_huge_pages(),
      check_pinned_memory(), check_io_uring(), check_direct_io()};
  std::ranges::move(check_tiers(config), std::back_inserter(results));
  std::ranges::move(check_cuda(), std::back_inserter(results));
  std::ranges::move(std::to_array({check_backend(config), check_profile(settings),
                                   check_config_in_force(config), check_variables()}),
                    std::back_inserter(results));
  return results;
}

}  // namespace terrace::apps
