#include "progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

namespace terrace::apps {

using namespace std::chrono_literals;

Progress::Progress(bool quiet) : enabled_(!quiet && isatty(STDERR_FILENO) == 1) {}

void Progress::show(std::string_view what, std::string_view stage, double share) {
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || now < next_) return;
  next_ = now + 100ms;
  fmt::print(stderr, "\r\033[K{}{}: {} {:.0f} %", prefix_, what, stage, 100 * share);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace terrace::apps
