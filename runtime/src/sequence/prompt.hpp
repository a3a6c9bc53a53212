// The storing of a prompt: rows go to the host behind the compute that follows, sinks and window
// stay on the device, and each layer's index is built on the host while the next layers compute.
#pragma once

#include "sequence_parts.hpp"

namespace terrace {

class Prompt {
 public:
  explicit Prompt(SequenceParts& parts) noexcept : parts_(parts), context_(parts.context) {}

  Status begin(std::size_t tokens);
  Result<Ticket> append(LayerId layer, const PromptPiece& piece, Queue& compute);
  Status finish(LayerId layer, Queue& compute);
  Status end();
  /// Gives the prefill up. Errors: not_ready, and the sequence is lost; those of loading the window
  /// again.
  Status abandon();

 private:
  Status reserve(std::size_t total);
  /// Gives back memory that a prompt had taken which will not come.
  void give_back();
  /// For an empty sequence: its first prompt decided on the budget, and took for it what a shorter
  /// one may need.
  void forget_first_prompt();
  /// Brings indexes back that gave way to a prompt.
  void make_indexes_resident();

  [[nodiscard]] Status check_turn(LayerId layer, Queue& compute) const;
  Status store_on_device(Layer& layer, const PromptPiece& piece, Queue& compute);
  Result<Ticket> store_on_host(Layer& layer, const PromptPiece& piece, Ticket ready);

  SequenceParts& parts_;
  SequenceContext& context_;
  std::size_t end_ = 0;
  std::size_t blocks_before_ = 0;  ///< that there was room for before the prefill
  bool streamed_before_ = false;   ///< so were indexes
  std::size_t next_layer_ = 0;     ///< layers are finished in order
  std::size_t appended_ = 0;       ///< positions of next_layer_ appended so far
  std::vector<StoreRows> stores_;
};

}  // namespace terrace
