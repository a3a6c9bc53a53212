#include "terrace/core/queue.hpp"

namespace terrace {

std::string_view to_string(Phase phase) noexcept {
  constexpr std::array<std::string_view, phase_count> names{
      "model", "select", "fetch", "attend", "update", "offload", "refill", "index", "cluster"};
  return names[static_cast<std::size_t>(phase)];
}

Result<Ticket> Queue::copy(Phase phase, std::span<const CopyExtent> extents) {
  for (const CopyExtent& extent : extents) {
    if (extent.bytes != 0 && (extent.target == nullptr || extent.source == nullptr)) {
      return fail(Errc::invalid_argument, "queue {}: a copy of {} bytes has a null pointer", name(),
                  extent.bytes);
    }
  }
  return do_copy(phase, extents);
}

Result<Ticket> Queue::call(Phase phase, Task task) {
  if (!task) return fail(Errc::invalid_argument, "queue {}: empty task", name());
  return do_call(phase, std::move(task));
}

Result<Ticket> Queue::launch(Phase phase, Task task) {
  if (!task) return fail(Errc::invalid_argument, "queue {}: empty task", name());
  return do_launch(phase, std::move(task));
}

Status Queue::wait_for(Ticket ticket) {
  if (ticket.queue == nullptr || ticket.queue == this) return {};
  return do_wait_for(ticket);
}

Status Queue::wait_for(const Event& event) {
  if (event.is_set()) return {};
  return do_wait_for_event(event);
}

Status Queue::drain(Duration timeout) {
  TERRACE_ASSIGN(const Ticket last, record());
  return wait(last, timeout);
}

}  // namespace terrace
