// An event as the progress of one piece of work, which queues wait for.
#pragma once

#include <memory>

#include "progress.hpp"
#include "terrace/core/event.hpp"

namespace terrace::offload {

inline constexpr std::uint64_t event_number = 1;

/// Returns a progress whose first piece is done when the event is set, and never fails.
inline std::shared_ptr<Progress> progress_of(const Event& event) {
  auto progress = std::make_shared<Progress>("an event");
  progress->issue();
  event.then([progress] { progress->complete(event_number); });
  return progress;
}

}  // namespace terrace::offload
