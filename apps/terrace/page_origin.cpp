#include "page_origin.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include "terrace/core/config.hpp"
#include "terrace/core/version.hpp"

namespace terrace::apps {
namespace {

std::vector<std::string> arguments_of_process() {
  std::vector<std::string> arguments;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string one; std::getline(file, one, '\0');) arguments.push_back(one);
  return arguments;
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

}  // namespace

std::string spell_command(std::span<const std::string> arguments) {
  std::string line;
  for (const std::string& argument : arguments) {
    const bool first = &argument == arguments.data();
    std::string word = first ? std::filesystem::path(argument).filename().string() : argument;
    if (word.find("://") != std::string::npos) word = without_password(word);
    line += (first ? "" : " ") + shell_word(word);
  }
  return line;
}

tuning::PageOrigin page_origin(bool quick) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {.command = spell_command(arguments_of_process()),
          .build = fmt::format("terrace {}, commit {}", version(), build_info().commit),
          .date = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now)),
          .quick = quick};
}

}  // namespace terrace::apps
