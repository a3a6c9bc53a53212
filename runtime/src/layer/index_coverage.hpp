// Which tokens an index has coded, and in which batches.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "terrace/core/ops.hpp"

namespace terrace {

class IndexCoverage {
 public:
  /// The coded tokens; empty = there is no index yet.
  [[nodiscard]] const TokenRange& tokens() const noexcept { return tokens_; }
  /// Where the build and each later batch begin.
  [[nodiscard]] std::span<const std::size_t> batches() const noexcept { return batches_; }
  /// Tokens that the codebook was trained on.
  [[nodiscard]] std::size_t trained() const noexcept { return trained_; }
  /// The end of the tokens when the index was last built, or a refresh of it was given up.
  [[nodiscard]] std::size_t fresh_end() const noexcept { return fresh_end_; }

  // A saved index.

  struct State {
    TokenRange tokens;
    std::vector<std::size_t> batches;
    std::size_t trained = 0;
    std::size_t fresh_end = 0;
  };
  /// The part of a coverage that is saved with an index. No coding may have been lost.
  [[nodiscard]] State state() const { return {tokens_, batches_, trained_, fresh_end_}; }
  /// The coverage of an index that was saved.
  [[nodiscard]] static IndexCoverage of(State saved);

  // Growing.

  /// A new index of `built`.
  void start(TokenRange built);
  /// There is no index any more. trained() stays.
  void clear() noexcept;
  /// Tokens up to `end` are being coded; they are a batch of their own or belong to the last one.
  void extend_to(std::size_t end, bool as_batch);
  /// No refresh of the tokens up to `end` is due.
  void skip_refresh(std::size_t end) noexcept { fresh_end_ = end; }

  // Cutting.

  /// Where what stands for the token at `position` begins to remember tokens before it; `position`
  /// where nothing does that reaches beyond it.
  [[nodiscard]] std::size_t remembered_from(std::size_t position,
                                            std::size_t indexed_together) const noexcept;
  /// Returns where the batch begins that the token at `position` belongs to, or comes after; where
  /// the first one begins for tokens before it.
  [[nodiscard]] std::size_t batch_of(std::size_t position) const noexcept;
  /// Forgets what is coded from `end` on.
  void end_at(std::size_t end) noexcept;

  // Coding that failed. It is done again, batch by batch, before any other.

  /// All tokens so far are coded well. Those that come may turn out not to be.
  void note_coded() noexcept { coded_before_ = tokens_.end; }
  [[nodiscard]] std::size_t coded_before() const noexcept { return coded_before_; }
  /// Returns where each batch that is not coded before `end` ends.
  [[nodiscard]] std::vector<std::size_t> ends_behind(std::size_t end) const;
  /// Ends of batches to be coded again, ascending.
  [[nodiscard]] std::span<const std::size_t> lost_ends() const noexcept { return lost_ends_; }
  /// Adds ends that come before those there are.
  void lose(std::span<const std::size_t> ends);
  /// The first lost batch is coded again.
  void find_first_lost();
  /// Batches that end after `end` need not be coded again.
  void forget_lost_behind(std::size_t end);

  // A draft.

  /// Tokens from here on may be rejected.
  void begin_draft() noexcept { draft_begin_ = tokens_.end; }
  /// The end of the tokens before the draft, or of a build amid it.
  [[nodiscard]] std::size_t draft_begin() const noexcept { return draft_begin_; }

 private:
  TokenRange tokens_;
  std::vector<std::size_t> batches_;
  std::vector<std::size_t> lost_ends_;
  std::size_t coded_before_ = 0;
  std::size_t trained_ = 0;
  std::size_t fresh_end_ = 0;
  std::size_t draft_begin_ = 0;
};

}  // namespace terrace
