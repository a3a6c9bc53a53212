// How far a stream has come: what the host has told it of, as events, and through Progress what of
// that is done.
//
// Piece n of a queue has the events of slot n % capacity. A later piece takes them over only when
// this one is done.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "../progress.hpp"

namespace terrace::offload {

class StreamProgress final : public Progress {
 public:
  [[nodiscard]] static Result<std::shared_ptr<StreamProgress>> create(std::string name,
                                                                      std::size_t capacity);
  ~StreamProgress() override;

  // Whoever tells the stream.

  /// Marks where the work of a piece begins, and where it ends with all work before it.
  [[nodiscard]] Status mark_begin(std::uint64_t number, cudaStream_t stream);
  [[nodiscard]] Status mark_end(std::uint64_t number, cudaStream_t stream);

  /// Publishes that the device has been told of a piece, or that it has failed.
  void publish(std::uint64_t number);

  // Anybody.

  /// Waits until a piece is published, or `give_up` is set and wake() called. Returns whether it
  /// is.
  bool wait_published(std::uint64_t number, Duration spin, const std::atomic<bool>& give_up);

  /// Puts all later work of `stream` behind a piece that is published.
  [[nodiscard]] Status put_behind(std::uint64_t number, cudaStream_t stream);

  // Whoever hears from the stream.

  /// Returns whether the marked work of a piece is done.
  [[nodiscard]] Result<bool> reached(std::uint64_t number) const;

  /// Returns the device's time between the marks of a piece that is done.
  [[nodiscard]] Result<Duration> elapsed(std::uint64_t number) const;

  /// Leaves the events to a device that does not come to an end.
  void abandon() noexcept { slots_.clear(); }

 private:
  struct Slot {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    std::uint64_t number = 0;  ///< whose end is marked
  };

  using Progress::Progress;
  [[nodiscard]] Slot& slot(std::uint64_t number) noexcept { return slots_[number % slots_.size()]; }
  [[nodiscard]] const Slot& slot(std::uint64_t number) const noexcept {
    return slots_[number % slots_.size()];
  }

  std::vector<Slot> slots_;
  std::mutex events_mutex_;  ///< guards the ends in slots_ against those who wait for them
  std::atomic<std::uint64_t> published_{0};
};

}  // namespace terrace::offload
