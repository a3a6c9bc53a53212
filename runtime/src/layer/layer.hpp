// One layer of a sequence: its rows, its index, its part of the resident cache, and what the tokens
// of the last step attended to.
#pragma once

#include <memory>
#include <vector>

#include "layer_cache.hpp"
#include "layer_index.hpp"
#include "layer_retention.hpp"
#include "rows/layer_rows.hpp"
#include "selection_lists.hpp"
#include "services/sequence_services.hpp"

namespace terrace {

/// The rows that one token of a step attends to in a layer.
struct AttendedToken {
  bool selected = false;
  TokenRange sinks;
  TokenRange window;
  SelectionLists selection;
};

class Layer {
 public:
  Layer(const SequenceServices& services, std::size_t number);

  const std::size_t number;
  LayerRows rows;
  LayerIndex index;
  LayerRetention retention;
  std::unique_ptr<LayerCache> cache;  ///< never null

  /// Has a place for each of so many tokens of a step that select one by one.
  void reserve_tokens(std::size_t count);
  [[nodiscard]] std::span<AttendedToken> tokens() noexcept { return tokens_; }
  /// The token that is under way or, between steps, the last one.
  [[nodiscard]] AttendedToken& token() noexcept { return tokens_[current_]; }
  [[nodiscard]] const AttendedToken& token() const noexcept { return tokens_[current_]; }
  [[nodiscard]] const AttendedToken& first_token() const noexcept { return tokens_.front(); }
  void go_to_token(std::size_t token) noexcept { current_ = token; }
  /// Selections are of no use any more.
  void forget_tokens() noexcept;

  [[nodiscard]] LayerId id() const noexcept { return static_cast<LayerId>(number); }
  [[nodiscard]] LayerTickets& tickets() noexcept { return rows.tickets; }

  /// The window for the token at `position`. Before the budget's window it has the tokens that are
  /// not indexed yet, which take the place of selected ones; a dense layer's window has all tokens
  /// after the sinks.
  [[nodiscard]] TokenRange window_at(std::size_t position) const noexcept;

  /// Whether retention alone knows the token at `position`: it is an entry, part of one, or gone.
  [[nodiscard]] bool is_decided(std::size_t position) const noexcept {
    return plan_.drops() && !plan_.is_dense(number) && position < progress_.retained_end() &&
           position >= progress_.split().sinks;
  }

  /// Selected tokens that those waiting in the window to be indexed take the place of. A prompt's
  /// own tokens are beside the budget.
  [[nodiscard]] std::size_t borrowed_at(std::size_t position) const noexcept;

  /// Whether the token at `position` attends to rows of a block whatever is selected.
  [[nodiscard]] bool needs_block(std::size_t block, std::size_t position) const noexcept;

  /// Tokens that a step may select.
  [[nodiscard]] TokenRange candidates() const noexcept {
    return {token().sinks.end, std::min(token().window.begin, index.image.coverage.tokens().end)};
  }
  /// Whether tokens attend to entries: not where they attend to all rows.
  [[nodiscard]] bool attends_to_entries() const noexcept {
    if (!plan_.holds()) return plan_.retains();
    return !plan_.is_dense(number) && token().window.begin > token().sinks.end;
  }
  /// Says what the token at `position` attends to. The index is as it is for that token.
  void open_token(std::size_t position);
  /// The step's tokens attend to all rows before `end`, up to their own.
  void open_all_tokens(std::size_t end) noexcept;

  /// Has the pages of blocks, or of all blocks with some of the tokens, on the host, and keeps them
  /// there as long as the result lives. Waits for those that are away. Errors: out_of_memory naming
  /// host.memory, where no other page can leave any more; those of the store.
  Result<HostRows> host_rows(std::span<const std::uint32_t> blocks);
  Result<HostRows> host_rows(TokenRange tokens);
  /// Whether no work under way reads the layer's pages. Waits so long for each such work.
  [[nodiscard]] bool pages_are_unread(Duration patience) const;

  /// Makes room for `length` positions, tables and host pages. Errors: out_of_memory, not_ready.
  Status reserve_positions(std::size_t length);

  /// Has a block in device memory in its own right. Errors: out_of_memory.
  Status place_block(std::size_t block);
  /// Gives a block's device memory up, a cached copy too.
  void drop_block(std::size_t block);
  void drop_blocks_from(std::size_t block);
  /// Gives up copies that the cache keeps of blocks from `block` on, and those on their way.
  void drop_copies_from(std::size_t block);

  /// Hands blocks that have passed the window to the cache, or gives them up.
  void hand_over_passed_blocks();
  /// Releases a block that a prompt left for the cache to take over with the first step. A sequence
  /// that is cut before that has its window elsewhere, and the block would leak.
  void release_left_behind(std::size_t block);

  /// Spills the first block before `end` that the token at `position` does not need. Returns
  /// whether there was one.
  bool spill_oldest(std::size_t end, std::size_t position);
  /// Gives up spare memory, or the oldest block. Returns whether there was any.
  bool spill_one();
  /// Whether the device has ended its work with the layer's blocks: another sequence's queue may
  /// write a block as soon as it is free.
  [[nodiscard]] bool at_rest() const;

  /// Makes sure that no other sequence shares the page of a block. Errors: out_of_memory,
  /// not_ready.
  Status own_block(std::size_t block);

  void give_up_device_memory();

 private:
  /// Returns window_at() as if no prompt were under way.
  [[nodiscard]] TokenRange own_window_at(std::size_t position) const noexcept;
  [[nodiscard]] bool selection_applies() const noexcept;
  /// Whether a step attends to every row, because none has been spilled.
  [[nodiscard]] bool attends_to_all(std::size_t position) const noexcept;

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  const SequenceMemory& memory_;
  std::vector<AttendedToken> tokens_{1};
  std::size_t current_ = 0;
};

/// Layers stay where they are: work that is enqueued points at them.
using Layers = std::vector<std::unique_ptr<Layer>>;

}  // namespace terrace
