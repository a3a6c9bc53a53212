// Wakes a thread that waits in poll().
#pragma once

#include <sys/eventfd.h>

#include "storage/process_descriptor.hpp"

namespace terrace::offload {

/// Threads  safe from any thread
class WakeEvent {
 public:
  /// Takes over a descriptor of eventfd(), which does not block.
  explicit WakeEvent(int descriptor) : event_(descriptor) {}

  /// Returns the descriptor, which can be read after set(); -1 in a child of fork().
  [[nodiscard]] int descriptor() const noexcept { return event_.get(); }
  void set() const noexcept { static_cast<void>(eventfd_write(event_.get(), 1)); }
  void clear() const noexcept {
    eventfd_t count = 0;
    static_cast<void>(eventfd_read(event_.get(), &count));
  }

 private:
  ProcessDescriptor event_;
};

}  // namespace terrace::offload
