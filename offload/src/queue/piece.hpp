// One piece of work of a queue, and how it is carried out on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "progress.hpp"
#include "terrace/core/queue.hpp"
#include "terrace/core/task.hpp"

namespace terrace::offload {

/// Reused: `extents` keeps its capacity, so that steady work allocates nothing.
struct Piece {
  enum class Kind : std::uint8_t { copy, call, launch, wait_for };

  Kind kind = Kind::call;
  Phase phase = Phase::model;
  std::uint64_t number = 0;
  TimePoint enqueued_at{};
  std::vector<CopyExtent> extents;    ///< copy
  Task task;                          ///< call, launch
  std::shared_ptr<Progress> awaited;  ///< wait_for
  std::uint64_t awaited_number = 0;
  TimePoint began_waiting{};  ///< wait_for: when the queue stepped back for it first

  void make_copy(Phase for_phase, std::span<const CopyExtent> of);
  void make_call(Phase for_phase, Task of);
  void make_launch(Phase for_phase, Task of);
  void make_wait(std::shared_ptr<Progress> of, std::uint64_t until);

  /// Bytes of a copy.
  [[nodiscard]] std::size_t copy_bytes() const noexcept;

  /// Moves the bytes of a copy.
  void move_bytes() const noexcept;

  /// Runs a host function and destroys it. Returns the bytes it moved, or its error.
  [[nodiscard]] Result<std::size_t> run_task() noexcept;

  /// Lets go of what the piece holds.
  void reset() noexcept;
};

/// Checks that a ticket's work was enqueued, so that a wait for it can end.
[[nodiscard]] Status check_ticket(const Progress& progress, std::uint64_t number);

}  // namespace terrace::offload
