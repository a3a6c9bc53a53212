// The state behind a Sequence: its parts, and its life between prompts and steps.
#pragma once

#include <memory>
#include <mutex>

#include "prompt.hpp"
#include "sequence_parts.hpp"
#include "step/step_batch.hpp"

namespace terrace {

class SequenceState {
 public:
  static Result<std::unique_ptr<SequenceState>> create(RuntimeState& runtime);
  ~SequenceState();
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  SequenceParts parts;
  Prompt prompt{parts};
  Participant participant{parts};

  // A step of this sequence alone.
  Status begin_step();
  Status attend(LayerId layer, const StepInput& input, float* output, Queue& compute);
  Result<KvView> gather(LayerId layer, const StepInput& input, Queue& compute);
  Status end_step();
  Status abandon_step();

  Status begin_prompt(std::size_t tokens);
  [[nodiscard]] bool index_ready() const;
  Status await_indexes();
  Status truncate(std::size_t length);
  Status pause();
  Status resume();
  /// The twin is paused.
  Result<std::unique_ptr<SequenceState>> fork();
  Status read_row(LayerId layer, HeadId head, std::size_t position, std::span<std::byte> target);
  Status drop_cached(double share, std::uint64_t seed);
  [[nodiscard]] StepSelection selection(LayerId layer) const noexcept;
  Result<ClusteringReport> clustering();
  void reset_counters() noexcept;

  /// Gives up the oldest device block that no step needs. Called by RuntimeState under memory
  /// pressure, from another sequence's thread too. Returns whether there was one.
  bool spill_one(bool own_thread);

  std::mutex mutex;  ///< held by every public call; try_lock by spilling from elsewhere

 private:
  SequenceState(RuntimeState& runtime, Lanes lanes);
  /// Makes a layer of another sequence the same as one of this, its pages shared.
  Status copy_layer(const Layer& mine, Layer& its);

  [[nodiscard]] RuntimeState& runtime() noexcept { return parts.context.runtime; }
  [[nodiscard]] Status& step_status() noexcept { return alone_.members().front().status; }

  StepBatch alone_;
};

}  // namespace terrace
