// The state of a Sequence: its parts, and its life between prompts and steps.
#pragma once

#include <memory>
#include <mutex>

#include "sequence_parts.hpp"
#include "step/participant.hpp"

namespace terrace {

class SequenceState {
 public:
  static Result<std::unique_ptr<SequenceState>> create(std::shared_ptr<RuntimeState> runtime);
  ~SequenceState();
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

 private:
  // Before all that uses it, so that it goes last.
  std::shared_ptr<RuntimeState> runtime_;

 public:
  SequenceParts parts;
  Participant participant{parts};

  Status begin_prompt(std::size_t tokens);
  /// No more tokens of a prompt under way will come.
  Status end_prompt();
  [[nodiscard]] bool index_ready() const;
  Status await_indexes();
  Status truncate(std::size_t length);
  Status pause();
  Status resume();
  /// The twin is paused, and start_as_twin() is its next call.
  Result<std::unique_ptr<SequenceState>> fork();
  /// Loads what a step needs: from the host or, where nothing is there, from the other's device
  /// memory. Without the other's mutex: memory may be taken from it.
  Status start_as_twin(const SequenceState& other);
  Status read_rows(LayerId layer, HeadId head, std::span<const std::uint32_t> positions,
                   std::span<std::byte> target);
  [[nodiscard]] std::size_t readable_tokens() const noexcept;
  [[nodiscard]] StepSelection selection(LayerId layer) const noexcept;
  Result<ClusteringReport> clustering();
  void reset_counters() noexcept;

  [[nodiscard]] bool is_idle() const noexcept;
  /// Gives up the oldest device block that no step needs; waits until work that uses the layer's
  /// blocks is done. Returns whether there was one.
  bool spill_one();

  /// Whether no step is under way that will read pages.
  [[nodiscard]] bool may_send_rows_away() const noexcept;
  /// Sends a batch of pages that no work reads to the store below the host; a `patient` call waits
  /// for work that reads some. Returns how many have left. Errors: those of the store.
  Result<std::size_t> send_rows_away(bool patient);

  std::mutex mutex;  ///< held by every public call, and while memory is taken from the sequence

 private:
  SequenceState(std::shared_ptr<RuntimeState> runtime, Lanes lanes);
  /// `bytes`: of the target.
  [[nodiscard]] Status check_rows(LayerId layer, HeadId head,
                                  std::span<const std::uint32_t> positions,
                                  std::size_t bytes) const;
  /// Some of the positions that a call is given.
  struct SomePositions {
    std::span<const std::uint32_t> all;
    std::span<const std::size_t> which;  ///< indices of `all`
  };
  /// Copies rows that lie on the host or below it to their places in `target`.
  Status read_host_rows(Layer& layer, HeadId head, const SomePositions& some,
                        std::span<std::byte> target) const;
  /// Makes a layer of another sequence the same as one of this, its pages shared.
  Status copy_layer(Layer& mine, Layer& its);
  Status copy_blocks(const Layers& source);
};

/// The state that a sequence's calls work on: for tests that look inside.
[[nodiscard]] SequenceState& state_of(Sequence& sequence) noexcept;

}  // namespace terrace
