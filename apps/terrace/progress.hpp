// One line on the terminal that says how far a long command is. Silent when standard error is no
// terminal.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace terrace::apps {

/// Threads  one at a time
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows "pqcache: decode 40 %", at most ten times a second.
  void show(std::string_view what, std::string_view stage, double share);

  /// From now on the line begins with these words.
  void begin_with(std::string words) { prefix_ = std::move(words); }

  /// Takes the line away, so that something else can be written.
  void clear();

 private:
  bool enabled_;
  std::string prefix_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace terrace::apps
