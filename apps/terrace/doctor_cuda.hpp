// The results of `terrace doctor` for CUDA, made from the parts of CUDA that were found.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "doctor_checks.hpp"
#include "terrace/offload/registry.hpp"

namespace terrace::apps {

/// The driver: `line` is the version line of the kernel module, empty if no module is loaded;
/// `toolkit` is the toolkit that compiled the program ("13.0" or "none").
CheckResult check_cuda_driver(std::string_view line, std::string_view toolkit);

/// The first of `folders` that has a CUDA toolkit, and whether it is new enough to build with.
CheckResult check_cuda_toolkit(std::span<const std::filesystem::path> folders);

/// The device, as the backend finds it. `seen`: the system shows a device, even if the backend
/// finds none.
CheckResult check_cuda_device(const offload::BackendInfo& cuda, bool seen);

/// Folders in which a toolkit may be, the likeliest first. `home` and `path` are the variables
/// CUDA_HOME and PATH, empty where they are not set.
std::vector<std::filesystem::path> toolkit_folders(std::string_view home, std::string_view path);

/// All rows about CUDA, of this machine.
std::vector<CheckResult> check_cuda();

}  // namespace terrace::apps
