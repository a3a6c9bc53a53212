// A line on the terminal that shows the progress of a long command. Silent when standard error is
// no terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace terrace::apps {

/// Returns "pqcache: decode [########------------] 43 %" in at most so many columns: if a line is
/// too long the bar is left out first, then the beginning of the words.
std::string progress_line(std::string_view words, double share, std::size_t columns);

/// Threads  one at a time
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows how much of "pqcache: decode" is done, at most ten times a second.
  void show(std::string_view what, std::string_view stage, double share);

  /// Shows, at once, what goes on within what was shown last: the start of something long.
  void show_stage(std::string_view stage);

  /// From now on the line begins with these words.
  void begin_with(std::string words) { prefix_ = std::move(words); }

  /// Takes the line away, so that something else can be written.
  void clear();

 private:
  bool enabled_;
  std::string prefix_;
  std::string what_;
  double share_ = 0;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace terrace::apps
