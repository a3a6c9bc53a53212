// A sequence's part in a step: what it gives the step's ops to do, layer by layer, and what it does
// with their results. The step enqueues the ops; between begin() and keep_up() the host waits for
// none of them.
#pragma once

#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "sequence/sequence_parts.hpp"
#include "terrace/runtime/sequence.hpp"

namespace terrace {

class Participant {
 public:
  explicit Participant(SequenceParts& parts) noexcept : parts_(parts), context_(parts.context) {}

  /// Makes room for the token at the sequence's length. Errors: those of Sequence::begin_step.
  Status begin();

  // A layer, in this order.

  /// Errors: invalid_argument where it is not this layer's turn, or on another queue than before.
  Status check_turn(std::string_view call, LayerId layer, const StepInput& input,
                    const Queue& compute) const;
  /// Lets changes of the cache take effect, and says what the token attends to.
  Status open_layer(LayerId layer, const StepInput& input, Queue& compute);
  [[nodiscard]] StoreRows store() const noexcept;
  [[nodiscard]] bool selects() const noexcept { return layer_->selected; }
  Result<SelectRequest> select(Queue& compute);
  [[nodiscard]] ResolveRows resolve() const noexcept { return parts_.workspace.resolve(*layer_); }
  [[nodiscard]] FetchRows fetch() const noexcept { return parts_.workspace.fetch(*layer_); }
  void note_selected(Ticket selected) noexcept;
  /// Sends rows and selections to the host where enough layers have some, behind `ready`.
  Status close_layer(Ticket ready);
  [[nodiscard]] KvView view() const noexcept;
  [[nodiscard]] DecodeAttention attention(float* output) const noexcept;
  void note_attended(Ticket attended) noexcept;
  /// Whoever computes attention by itself has enqueued it when the next call comes.
  void leave_attention_to_engine() noexcept { gathers_ = true; }

  // The end.

  /// Looks after the cache, beside compute. All layers must be enqueued.
  Status keep_up();
  /// Waits for compute, and counts the token in.
  Status conclude();
  /// Gives the step up. Errors: not_ready; the sequence is lost then.
  Status abandon();

  /// The sequence's: held while it begins a step and while it ends one, so that others who look for
  /// device memory see neither half-way.
  [[nodiscard]] std::mutex& mutex() const noexcept;

  [[nodiscard]] std::size_t layers_done() const noexcept { return next_layer_; }
  [[nodiscard]] bool all_layers_done() const noexcept {
    return next_layer_ == parts_.layers.size();
  }

 private:
  Status prepare();
  Status reserve();
  Status note_attention();
  Status copy_to_host(LayerSpan layers, Ticket ready);
  /// Layers whose rows and selections leave together once so many layers are done; none in between.
  [[nodiscard]] LayerSpan batch_ending_at(std::size_t layers_done) const noexcept;
  /// The same of changes of caches that need rows from the host. The other half of the layers
  /// computes, in this step or the next, before they are waited for.
  [[nodiscard]] LayerSpan half_ending_at(std::size_t layers_done) const noexcept;
  Status keep_up(Layer& layer);

  SequenceParts& parts_;
  SequenceContext& context_;
  Layer* layer_ = nullptr;  ///< the one under way
  StepInput input_;
  std::size_t next_layer_ = 0;
  bool gathers_ = false;  ///< the step's attention is the embedder's own
  std::vector<CopyExtent> extents_;
};

}  // namespace terrace
