// The work of a sequence: its queues, what it waits for, and what it counts and reports.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "journal.hpp"
#include "lanes.hpp"
#include "terrace/core/backend.hpp"
#include "terrace/runtime/counters.hpp"

namespace terrace {

struct SequenceWorkOptions {
  SequenceId id = {};
  Duration deadline{};                    ///< that a wait may take at most
  SelectionObserver* observer = nullptr;  ///< null = nobody observes
};

/// Threads  one at a time
struct SequenceWork {
  SequenceWork(Backend& of, Lanes queues, const SequenceWorkOptions& options) noexcept
      : backend(of),
        id(options.id),
        deadline(options.deadline),
        lanes(std::move(queues)),
        journal(options.observer, options.id) {}

  Backend& backend;
  const SequenceId id;
  const Duration deadline;
  Lanes lanes;
  Journal journal;
  SequenceCounters counters = {};
  SequenceCounters published = {};  ///< of these, as far as the runtime has added them to its own
  Queue* compute = nullptr;  ///< the embedder's, as long as work of the sequence may be in it
  Ticket computed = {};      ///< the step's compute, as far as it is known
  std::vector<Buffer> abandoned = {};  ///< that copies past their deadline may still use

  [[nodiscard]] const Clock& clock() const noexcept { return backend.clock(); }

  /// Waits until the deadline, and counts how long.
  Status await(WaitReason reason, const Ticket& ticket) { return await(reason, ticket, deadline); }
  Status await(WaitReason reason, const Ticket& ticket, Duration patience);
  void count_wait(WaitReason reason, TimePoint begin) noexcept {
    counters.waits[static_cast<std::size_t>(reason)] += clock().now() - begin;
  }

  /// Counts the time of cache upkeep since `begin`. Compute that ends before the upkeep is taken to
  /// hide nothing of it.
  void count_upkeep(TimePoint begin);

  /// Copies at once and waits for it. Past the deadline `abandoned` keeps `on_host`, the memory of
  /// the copy's host side, for a copy that is still under way.
  Status copy_now(Queue& queue, Phase why, std::span<const CopyExtent> extents, Buffer& on_host);

  /// Returns what a call has done. Its error names the call and the sequence.
  template <typename T>
  [[nodiscard]] Result<T> named(std::string_view call, Result<T> done) const {
    if (done) [[likely]]
      return done;
    return tl::unexpected(named(call, done.error()));
  }
  [[nodiscard]] Error named(std::string_view call, const Error& error) const;
};

}  // namespace terrace
