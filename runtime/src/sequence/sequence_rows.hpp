// The rows of a sequence, all layers: room for tokens to come, and what lies in device memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "services/sequence_services.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

class Layer;

class SequenceRows {
 public:
  SequenceRows(const SequenceServices& services,
               std::span<const std::unique_ptr<Layer>> layers) noexcept
      : plan_(services.plan),
        progress_(services.progress),
        work_(services.work),
        memory_(services.memory),
        layers_(layers) {}

  /// Tries `reserve` for a sequence that grows to `length` tokens, evicting blocks of other
  /// sequences if needed. `reserve` is not called before there is room for all pages that the
  /// sequence will have.
  Status reclaiming_for(std::size_t length, FunctionRef<Status()> reserve) const;

  /// Makes room for the token at `position`, or for all up to it. Errors: out_of_memory, not_ready.
  Status reserve_positions(std::size_t length);
  /// Makes sure that no other sequence shares pages of blocks [begin, end).
  Status own_blocks(std::size_t begin, std::size_t end);
  /// Places blocks [begin, end) in device memory, to be written.
  Status place_blocks(std::size_t begin, std::size_t end);

  /// Places the blocks from `begin` on that the token at `position` attends to whatever is
  /// selected.
  Status place_needed(std::size_t begin, std::size_t position);
  /// Places all blocks after those that the sequence has, as far as there is memory. Older blocks
  /// that the token at `position` does not need make room for them: if the prompt is given up, the
  /// next token needs the same blocks as before.
  void place_spare(std::size_t position);
  /// Brings back the blocks that the next step needs. After an error, no new block is there.
  Status load_needed();
  void hand_over_passed();

  /// Spills one block. Returns whether there was one that no step needs.
  bool spill_one();

  // Pages that leave the host.

  /// The sequences of a step that is under way.
  using Company = std::vector<SequenceRows*>;
  /// From now on, until leave(), pages of each of the company may leave for rows of another one.
  void join(Company& company);
  void leave() noexcept;

  /// Sends pages to the store: a batch, those first that were wanted longest ago, of its own, or
  /// where none can leave, of another one of its company; of a region, all of them. Layers with
  /// work under way keep theirs; a `patient` call waits for that work, for all layers until the
  /// deadline. Returns how many have left. Errors: those of the store.
  Result<std::size_t> send_away(const RowsToSend& rows);
  /// Sends pages away that exceed the host's, as far as they can leave now, and copies those ahead
  /// that will soon have to leave.
  void relieve_host();

  /// Forgets the blocks after the first `blocks`.
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
  Status load_layers(std::span<const Loading> loading);
  Status load_layer(std::span<const Loading> loading);
  /// Whether there is room on the host for the pages that `length` tokens lack. Errors:
  /// out_of_memory naming host.memory.
  [[nodiscard]] Status check_pages(std::size_t length) const;
  void note_load(std::span<const Loading> loaded) const;
  /// Sends up to `count` pages of its own.
  Result<std::size_t> send_own_away(const RowsToSend& rows, std::size_t count);
  /// Sends pages away as long as more are on the host than are to be, and as this sequence has some
  /// that can leave now.
  void send_excess_away();
  /// Where host memory is filling, starts to copy full blocks to the store, which then leave
  /// without a write. Nobody waits.
  void copy_ahead();

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  const SequenceMemory& memory_;
  std::span<const std::unique_ptr<Layer>> layers_;
  Company* company_ = nullptr;  ///< null = no step is under way
};

}  // namespace terrace
