// Memory of all indexes of a sequence, on the host and on the device.
#pragma once

#include <memory>

#include "device_indexes.hpp"
#include "layer/index_memory.hpp"
#include "services/sequence_services.hpp"

namespace terrace {

class IndexRoom {
 public:
  IndexRoom(const SequenceServices& services, LayerSpan layers);

  /// Makes room in every layer for indexes of tokens up to `tokens_end`. Where device memory is too
  /// small for all of them and the options leave it open, they are streamed from then on.
  /// Errors: out_of_memory, not_ready.
  Status reserve(std::size_t tokens_end);
  /// Makes room to build the index of a layer anew, of `tokens`: memory that the index shares is
  /// replaced. Errors: out_of_memory, not_ready, those of coding.
  Status prepare_build(Layer& layer, TokenRange tokens);
  /// Makes room to code `tokens` into the index of a layer, which covers the tokens before.
  /// Errors: as prepare_build().
  Status prepare_extension(Layer& layer, TokenRange tokens);
  /// Makes room to change the chunk of a layer's index in which the token at `position` is coded.
  /// Nothing is being coded. Errors: out_of_memory.
  Status prepare_cut(Layer& layer, std::size_t position);
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
  /// Chunks of `tokens` of a layer's index, counted from `first`, the index's first token.
  [[nodiscard]] TokenRange chunks_of(TokenRange tokens, std::size_t first) const noexcept;
  Status prepare(Layer& layer, std::size_t tokens_end, const IndexPart& part);

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  const SequenceMemory& memory_;
  LayerSpan layers_;
  std::unique_ptr<DeviceIndexes> device_;
};

}  // namespace terrace
