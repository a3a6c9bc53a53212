// Waiting for a queue before memory goes that its work uses.
#pragma once

#include "terrace/core/queue.hpp"

namespace terrace {

/// Waits until everything enqueued has ended, well or not, however many times `patience` that
/// takes: work that is late still uses its memory.
inline void drain_to_end(Queue& queue, Duration patience) {
  while (true) {
    const Status drained = queue.drain(patience);
    if (drained || drained.error().code != Errc::not_ready) return;
  }
}

}  // namespace terrace
