#include "progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "output.hpp"

namespace terrace::apps {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t bar_columns = 20;

/// A line that is longer wraps, and could not be taken back.
std::size_t terminal_columns() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

/// Terminals that say they are dumb, as an editor's, show the control characters.
bool can_take_back_a_line() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && kind != nullptr && *kind != '\0' &&
         std::string_view(kind) != "dumb";
}

}  // namespace

std::string progress_line(std::string_view words, double share, std::size_t columns) {
  share = std::clamp(share, 0.0, 1.0);
  const auto done = static_cast<std::size_t>(share * bar_columns);
  const std::string percent = fmt::format(" {:.0f} %", 100 * share);
  const std::string bar =
      " [" + std::string(done, '#') + std::string(bar_columns - done, '-') + "]";
  if (words.size() + bar.size() + percent.size() <= columns) {
    return fmt::format("{}{}{}", words, bar, percent);
  }
  const std::size_t room = columns - std::min(columns, percent.size());
  words.remove_prefix(words.size() - std::min(words.size(), room));
  return fmt::format("{}{}", words, percent);
}

Progress::Progress(bool quiet) : enabled_(!quiet && can_take_back_a_line()) {}

void Progress::show(std::string_view what, std::string_view stage, double share) {
  if (!enabled_) return;
  what_ = what;
  share_ = share;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + 100ms;
  say_bare("\r\033[K{}",
           progress_line(fmt::format("{}{}: {}", prefix_, what, stage), share, terminal_columns()));
  std::fflush(stderr);
  shown_ = true;
}

void Progress::show_stage(std::string_view stage) {
  next_ = {};
  show(std::string(what_), stage, share_);
}

void Progress::clear() {
  if (!shown_) return;
  say_bare("\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace terrace::apps
