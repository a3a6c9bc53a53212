// The checks of `terrace doctor`: one function for each thing that users stumble over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"

namespace terrace::apps {

enum class CheckStatus : std::uint8_t { ok, warn, fail, skip };

std::string_view to_string(CheckStatus status) noexcept;

struct CheckResult {
  std::string_view check;
  CheckStatus status = CheckStatus::ok;
  std::string found;
  std::string advice;  ///< empty when there is nothing to do
};

/// Returns the first line of a file of the system; empty where it cannot be read.
std::string first_line(const char* path);

/// Runs all checks. Nothing is changed; no file with a name is written.
std::vector<CheckResult> run_checks(const Settings& settings);

}  // namespace terrace::apps
