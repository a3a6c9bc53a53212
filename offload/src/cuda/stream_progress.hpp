// How far a stream has come: what it has been told of and is not known to have done, and through
// Progress what is done.
//
// An event at a place of the stream, a *mark*, says when the work before it is done. A piece of
// work is marked where somebody is to wait for it: by record(), by wait_for() of another queue, by
// a thread that waits or polls. A piece that is not marked is done when a later one that is marked
// is. If a piece is waited for that neither is marked nor comes before a mark, the mark comes after
// all work of the stream so far. After a long run of pieces without one, a mark comes unasked.
#pragma once

#include <cuda_runtime.h>

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "event_pool.hpp"
#include "queue/progress.hpp"
#include "stream_watch.hpp"
#include "terrace/core/queue.hpp"

namespace terrace::offload {

/// A piece that was carried out, until it is known to be done.
struct ToldPiece {
  enum class Counts : std::uint8_t { nothing, work, wait };

  std::uint64_t number = 0;
  bool on_stream = false;       ///< else it was done when it was published, or is skipped
  cudaEvent_t begin = nullptr;  ///< if times are measured: where its work begins
  cudaEvent_t end = nullptr;    ///< its mark, if it has one
  Counts counts = Counts::nothing;
  Phase phase = Phase::model;
  std::size_t bytes = 0;
};

/// The stream and its events, and the watch that looks whether these are reached.
struct MarkedStream {
  int device = 0;
  cudaStream_t stream = nullptr;
  EventPool* events = nullptr;
  StreamWatch* watch = nullptr;
  WatchedStream* watched = nullptr;  ///< as the watch knows the stream; lives while work is told
  bool always_watched = false;       ///< and not only while somebody waits
};

class StreamProgress final : public Progress {
 public:
  StreamProgress(std::string name, const MarkedStream& marked)
      : Progress(std::move(name)), marked_(marked) {}

  /// Publishes a piece. The piece is marked if somebody waits for it.
  void publish(ToldPiece piece);

  /// The first piece that is not known to be done.
  struct First {
    ToldPiece piece;
    cudaEvent_t mark = nullptr;  ///< the first one at the piece or after it; null if there is none
    std::optional<Error> unmarked;  ///< why there is none, if marking failed
  };
  [[nodiscard]] std::optional<First> first() const;

  /// Forgets the first piece, which is done: no stream will wait for its events. complete() has to
  /// follow. Returns the piece with the events that it has by now: it may have been marked since
  /// first() was asked.
  ToldPiece forget_first();

  /// Returns whether pieces are left, and somebody waits for one. If not, the stream is announced
  /// to its watch again when that is so.
  [[nodiscard]] bool keep_watching();

  /// Makes all later work of `stream` wait for a piece that is told.
  [[nodiscard]] Status put_behind(std::uint64_t number, cudaStream_t stream);

  void mark(std::uint64_t number) override;

 private:
  void on_awaited(std::uint64_t number) override;

  // With the mutex held.

  [[nodiscard]] bool wants_watch() const { return marked_.always_watched || is_awaited(); }
  /// Returns the first mark at a piece that is told or after it; null if there is none.
  [[nodiscard]] cudaEvent_t find_mark(std::uint64_t number) const;
  /// Returns that mark, which comes after all work so far where there was none.
  Result<cudaEvent_t> mark_told(std::uint64_t number);
  /// Has the piece marked; without a mark it fails.
  void mark_or_fail(std::uint64_t number);

  MarkedStream marked_;
  mutable std::mutex mutex_;  ///< guards all below
  std::deque<ToldPiece> told_;
  std::size_t unmarked_run_ = 0;    ///< pieces since the last mark
  std::uint64_t to_be_marked_ = 0;  ///< the last piece that is to be marked once it is told
  std::optional<Error> unmarked_;   ///< why a piece that somebody waits for has no mark
  bool watched_ = false;
};

}  // namespace terrace::offload
