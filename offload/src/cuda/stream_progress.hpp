// How far a stream has come: what it has been told of and is not known to have done, and through
// Progress what is done.
#pragma once

#include <cuda_runtime.h>

#include <deque>
#include <mutex>
#include <optional>

#include "event_pool.hpp"
#include "queue/progress.hpp"
#include "terrace/core/queue.hpp"

namespace terrace::offload {

/// A piece that was carried out, until it is known to be done.
struct ToldPiece {
  enum class Counts : std::uint8_t { nothing, work, wait };

  std::uint64_t number = 0;
  std::optional<EventPair> events;  ///< none: it was done when it was published, or is skipped
  Counts counts = Counts::nothing;
  Phase phase = Phase::model;
  std::size_t bytes = 0;
};

class StreamProgress final : public Progress {
 public:
  using Progress::Progress;

  /// Publishes a piece. Returns whether all pieces before it are done: the thread that watches the
  /// stream must be notified then.
  [[nodiscard]] bool publish(const ToldPiece& piece);

  /// Returns the first piece that is not done.
  [[nodiscard]] std::optional<ToldPiece> first() const;

  /// Forgets the first piece, which is done: no stream will wait for its events. complete() has to
  /// follow.
  void forget_first();

  /// Returns whether pieces are left. If not, the next publish() returns true.
  [[nodiscard]] bool keep_watching();

  /// Makes all later work of `stream` wait for a piece that is told.
  [[nodiscard]] Status put_behind(std::uint64_t number, cudaStream_t stream);

 private:
  mutable std::mutex mutex_;  ///< guards all below
  std::deque<ToldPiece> told_;
  bool watched_ = false;
};

}  // namespace terrace::offload
