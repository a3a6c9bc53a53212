#include "doctor_cuda.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "terrace/core/list_folder.hpp"
#include "terrace/core/version.hpp"

namespace terrace::apps {
namespace {

namespace fs = std::filesystem;
constexpr int toolkit_min = 12'080;  // the build refuses older ones

/// The first driver that runs programs of a toolkit's major version.
int driver_needed(std::string_view toolkit) {
  constexpr int of_cuda_12 = 525;
  constexpr int of_cuda_13 = 580;
  return toolkit.starts_with("12.") ? of_cuda_12 : of_cuda_13;
}

/// 580 of "... Kernel Module  580.65.06  Release Build ..."; 0 where there is no such number.
int driver_version(const std::string& line) {
  static const std::regex version(R"(\b(\d{3,})\.\d+)");
  std::smatch found;
  if (!std::regex_search(line, found, version)) return 0;
  const std::string digits = found[1];
  int number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

/// CUDA_VERSION of a toolkit's headers: 12080 for 12.8; 0 where they do not say.
int toolkit_version(const fs::path& folder) {
  std::ifstream header(folder / "include" / "cuda.h");
  constexpr std::string_view define = "#define CUDA_VERSION ";
  for (std::string line; std::getline(header, line);) {
    if (!line.starts_with(define)) continue;
    int version = 0;
    std::from_chars(line.data() + define.size(), line.data() + line.size(), version);
    return version;
  }
  return 0;
}

bool has_compiler(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "bin" / "nvcc", error);
}

/// Whether the system has a device file of NVIDIA's, /dev/nvidia0 or another number.
bool sees_device() {
  const auto is_device = [](const fs::path& file) {
    const std::string name = file.filename();
    return name.starts_with("nvidia") && name.find_first_not_of("0123456789", 6) == name.npos &&
           name.size() > 6;
  };
  const auto files = list_folder("/dev");
  return files && std::ranges::any_of(*files, is_device);
}

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

CheckResult check_cuda_driver(std::string_view line, std::string_view toolkit) {
  const int needed = driver_needed(toolkit);
  const std::string advice = fmt::format(
      "install NVIDIA's driver {} or newer; without one everything runs on the host", needed);
  if (line.empty()) return {"cuda_driver", CheckStatus::skip, "no NVIDIA driver is loaded", advice};
  const std::string found(line);
  const int version = driver_version(found);
  if (version == 0) {
    return {"cuda_driver", CheckStatus::warn, fmt::format("{}, of unknown version", found), advice};
  }
  if (version >= needed) return {"cuda_driver", CheckStatus::ok, found, ""};
  return {"cuda_driver", CheckStatus::warn, fmt::format("{}, older than {}", found, needed),
          advice};
}

CheckResult check_cuda_toolkit(std::span<const fs::path> folders) {
  const std::string advice = fmt::format("install CUDA {}.{} or newer to build the CUDA backend",
                                         toolkit_min / 1000, toolkit_min % 1000 / 10);
  const auto folder = std::ranges::find_if(folders, has_compiler);
  if (folder == folders.end()) {
    return {"cuda_toolkit", CheckStatus::skip,
            "no nvcc in CUDA_HOME, on the PATH or in /usr/local/cuda", advice};
  }
  const int version = toolkit_version(*folder);
  if (version == 0) {
    return {"cuda_toolkit", CheckStatus::warn,
            fmt::format("{}, of unknown version", folder->string()), advice};
  }
  const std::string found =
      fmt::format("{}, CUDA {}.{}", folder->string(), version / 1000, version % 1000 / 10);
  if (version < toolkit_min) return {"cuda_toolkit", CheckStatus::warn, found, advice};
  return {"cuda_toolkit", CheckStatus::ok, found, ""};
}

CheckResult check_cuda_device(const offload::BackendInfo& cuda, bool seen) {
  if (cuda.available) return {"cuda_device", CheckStatus::ok, cuda.reason, ""};
  if (seen)
    return {"cuda_device", CheckStatus::warn, "a device is there, and is not used", cuda.reason};
  return {"cuda_device", CheckStatus::skip, cuda.reason, ""};
}

std::vector<fs::path> toolkit_folders(std::string_view home, std::string_view path) {
  std::vector<fs::path> folders;
  if (!home.empty()) folders.emplace_back(home);
  while (!path.empty()) {
    const std::size_t end = std::min(path.find(':'), path.size());
    const fs::path folder(path.substr(0, end));
    if (folder.filename() == "bin") folders.push_back(folder.parent_path());
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  folders.emplace_back("/usr/local/cuda");
  return folders;
}

std::vector<CheckResult> check_cuda() {
  const std::vector<offload::BackendInfo> backends = offload::list_backends();
  const auto cuda = std::ranges::find(backends, "cuda", &offload::BackendInfo::name);
  return {check_cuda_driver(first_line("/proc/driver/nvidia/version"), build_info().cuda),
          check_cuda_toolkit(toolkit_folders(variable("CUDA_HOME"), variable("PATH"))),
          check_cuda_device(*cuda, sees_device())};
}

}  // namespace terrace::apps
