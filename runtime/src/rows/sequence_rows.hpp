// The rows of a sequence, all layers: room for tokens to come, and what lies in device memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "terrace/core/function_ref.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

class Layer;
struct SequenceContext;

class SequenceRows {
 public:
  SequenceRows(SequenceContext& context, std::span<const std::unique_ptr<Layer>> layers) noexcept
      : context_(context), layers_(layers) {}

  /// Tries `reserve` for a sequence that grows to `length` tokens, taking from who can spare.
  /// First it asks for host pages: spilling on the device makes no room for them.
  Status reclaiming_for(std::size_t length, FunctionRef<Status()> reserve) const;

  /// Makes room for the token at `position`, or for all up to it. Errors: out_of_memory, not_ready.
  Status reserve_positions(std::size_t length);
  /// Makes sure that no other sequence shares pages of blocks [begin, end).
  Status own_blocks(std::size_t begin, std::size_t end);
  /// Has blocks [begin, end) in device memory, to be written.
  Status place_blocks(std::size_t begin, std::size_t end);

  /// The same of blocks from `begin` on that the token at `position` attends to whatever is
  /// selected.
  Status place_needed(std::size_t begin, std::size_t position);
  /// The same of all blocks behind those the sequence has, as far as there is memory. Older blocks
  /// that the token at `position` does not need make room for them: of a prompt that is given up,
  /// the next token needs what it needed before.
  void place_spare(std::size_t position);
  /// Brings back what the next step needs. On an error nothing is there that was not before.
  Status load_needed();
  void hand_over_passed();

  /// Spills one block. Returns whether there was one that no step needs.
  bool spill_one();
  /// Forgets the blocks behind the first `blocks`.
  void trim(std::size_t blocks);
  [[nodiscard]] std::size_t blocks() const noexcept;

 private:
  struct Loading {
    Layer* layer = nullptr;
    std::size_t block = 0;
    std::byte* slot = nullptr;
  };

  /// Takes device memory for blocks that the next step needs and that are absent.
  Status take_needed(Layer& layer, std::vector<Loading>& loading);
  Status load(std::span<const Loading> loading);
  void note_load(std::span<const Loading> loaded) const;

  SequenceContext& context_;
  std::span<const std::unique_ptr<Layer>> layers_;
};

}  // namespace terrace
