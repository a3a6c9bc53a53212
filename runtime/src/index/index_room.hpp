// Memory of all indexes of a sequence, on the host and on the device.
#pragma once

#include <memory>

#include "device_indexes.hpp"

namespace terrace {

class IndexRoom {
 public:
  IndexRoom(SequenceContext& context, LayerSpan layers);

  /// Makes room in every layer for indexes of tokens up to `tokens_end`. Where device memory is too
  /// small for all of them and the options leave it open, they are streamed from then on.
  /// Errors: out_of_memory, not_ready.
  Status reserve(std::size_t tokens_end);
  /// Gives up what a sequence of its length does not need. Nothing may read it.
  void trim();

  [[nodiscard]] DeviceIndexes& device() noexcept { return *device_; }
  [[nodiscard]] bool streams() const noexcept { return device_->streams(); }

  /// Starts again with what the options ask for, and nothing on the device.
  void start_over();

  /// Where the last index ends: layers differ.
  [[nodiscard]] std::size_t indexed_end() const noexcept;

  /// Whether what the next step reads is on its way: tokens that have passed are coded, and the
  /// first layer's index is streamed.
  bool ready = false;

 private:
  Status stream();

  SequenceContext& context_;
  LayerSpan layers_;
  std::unique_ptr<DeviceIndexes> device_;
};

}  // namespace terrace
