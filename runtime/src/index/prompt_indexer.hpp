// Indexes the tokens of a prompt together. The step that brings the last of an announced prompt
// indexes each layer as soon as it has stored the layer's rows: clustering runs while later layers
// compute. Other prompts are indexed once all their tokens are there.
//
//   begin(end)              before the step: memory, and a note of the index as it is
//   take_hints(layer, ..)   before a layer's rows are stored
//   start(layer, compute)   a layer's rows are on their way to the host
//   keep(), or give_up()    the tokens stay, or some of them do not
#pragma once

#include <vector>

#include "index_upkeep.hpp"
#include "services/sequence_services.hpp"

namespace terrace {

class PromptIndexer {
 public:
  PromptIndexer(const SequenceServices& services, LayerSpan layers, IndexRoom& room,
                IndexBuilder& builder, IndexUpkeep& upkeep) noexcept
      : plan_(services.plan),
        progress_(services.progress),
        work_(services.work),
        memory_(services.memory),
        layers_(layers),
        room_(room),
        builder_(builder),
        upkeep_(upkeep) {}

  /// Gets ready to index a prompt up to `end` during the next step. Nothing is being built. Where
  /// memory is short, is_under_way() stays false: the prompt is indexed after the step.
  /// Errors: those of coding, not_ready.
  Status begin(std::size_t end);
  [[nodiscard]] bool is_under_way() const noexcept { return under_way_; }
  /// A step that was to bring a prompt's end has not begun. Room and notes stay as begin() left
  /// them.
  void forget() noexcept { under_way_ = false; }
  /// Enqueues on `compute` the adding of the prompt's hints to the hints that the build reads,
  /// after the copy of the last piece's hints.
  Status take_hints(Layer& layer, Queue& compute) const;
  /// Starts to index a layer once its tickets().offloaded is done. Work on `compute` so far hides
  /// the layer before. Errors: those of queues.
  Status start(Layer& layer, Queue& compute);
  /// The prompt's tokens stay. Returns whether all layers were started: if not, index() starts the
  /// other layers.
  bool keep();
  /// Restores the index as it was before begin(). The queues must be quiesced.
  void give_up();

  /// Indexes the whole prompt in the layers that were not started. Errors: out_of_memory, those of
  /// queues; a further call goes on with the layers that lack.
  Status index();

 private:
  /// Notes indexes as they are, all coding done. Errors: not_ready, those of coding.
  Status note_indexes();
  /// The tokens that an index of a sequence of `end` tokens is made of.
  [[nodiscard]] TokenRange tokens_to(std::size_t end) const noexcept;
  [[nodiscard]] bool has_index() const noexcept;
  Status index(Layer& layer, TokenRange tokens);
  /// Gives up memory that a sequence of its length does not need.
  void give_room_back();

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  const SequenceMemory& memory_;
  LayerSpan layers_;
  IndexRoom& room_;
  IndexBuilder& builder_;
  IndexUpkeep& upkeep_;

  bool under_way_ = false;
  bool streamed_before_ = false;  ///< so were indexes
  std::size_t end_ = 0;
  std::uint64_t builds_before_ = 0;  ///< as counted
};

}  // namespace terrace
