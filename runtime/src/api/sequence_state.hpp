// The state of a Sequence: its parts, and its life between prompts and steps.
#pragma once

#include <memory>

#include "sequence/sequence_parts.hpp"
#include "step/participant.hpp"

namespace terrace {

class SequenceState final : public MemoryHolder {
 public:
  static Result<std::unique_ptr<SequenceState>> create(std::shared_ptr<RuntimeState> runtime);
  ~SequenceState() override;
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

 private:
  // Before all that uses it, so that it goes last.
  std::shared_ptr<RuntimeState> runtime_;

 public:
  SequenceParts parts;
  Participant participant{parts, mutex};
  /// Tokens of the stored prefix that the sequence began with, in whole chunks, if the store did
  /// not have the indexes at its end: publishing writes them, for others that go on from there.
  std::size_t unindexed_prefix = 0;

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

  [[nodiscard]] bool is_idle() const noexcept override;
  bool spill_one() override;
  [[nodiscard]] bool may_send_rows_away() const noexcept override;
  Result<std::size_t> send_rows_away(const RowsToSend& rows) override;

  RuntimeState& runtime() noexcept { return *runtime_; }

 private:
  SequenceState(std::shared_ptr<RuntimeState> runtime, Lanes lanes);
  /// Waits until the prompt is indexed. A decision that is under way ends too.
  Status await_prompt_index();
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
