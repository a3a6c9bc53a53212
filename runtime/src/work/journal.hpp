// All that an observer hears of a sequence. Without an observer nothing is gathered.
#pragma once

#include <cstdint>

#include "terrace/core/ids.hpp"
#include "terrace/runtime/counters.hpp"
#include "terrace/runtime/selection_observer.hpp"

namespace terrace {

class Journal {
 public:
  Journal(SelectionObserver* observer, SequenceId sequence) noexcept
      : observer_(observer), sequence_(sequence) {}

  /// Whether there is an observer: data that takes time to gather is gathered only for one.
  [[nodiscard]] bool listens() const noexcept { return observer_ != nullptr; }

  void note_share(std::size_t sharers) const {
    if (listens()) observer_->on_share(sequence_, sharers);
  }
  /// The journal names the sequence.
  void note_prompt(LayerPrompt prompt) const {
    prompt.sequence = sequence_;
    if (listens()) observer_->on_prompt(prompt);
  }
  void note_selection(LayerSelection selection) const {
    selection.sequence = sequence_;
    if (listens()) observer_->on_selection(selection);
  }
  void note_load(LayerLoad load) const {
    load.sequence = sequence_;
    if (listens()) observer_->on_load(load);
  }
  void note_loss() const {
    if (listens()) observer_->on_loss(sequence_);
  }
  void note_pause() const {
    if (listens()) observer_->on_pause(sequence_);
  }
  void note_close() const {
    if (listens()) observer_->on_close(sequence_);
  }

  /// Selected ids that a step sent to the host.
  void add_ids(std::uint64_t bytes) noexcept { ids_bytes_ += bytes; }

  /// `offload_bytes` are the step's, `index_bytes` all since the counters were reset.
  void note_step_end(std::uint64_t offload_bytes, std::uint64_t index_bytes);
  /// A step that is not reported has ended.
  void pass_over(std::uint64_t index_bytes) noexcept {
    reported_index_bytes_ = index_bytes;
    ids_bytes_ = 0;
  }
  void reset_counters() noexcept { reported_index_bytes_ = ids_bytes_ = 0; }

 private:
  SelectionObserver* observer_;
  SequenceId sequence_;
  std::uint64_t reported_index_bytes_ = 0;
  std::uint64_t ids_bytes_ = 0;  ///< that the observer has not heard of
};

}  // namespace terrace
