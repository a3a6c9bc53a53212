// The parts of a sequence. Prompts, steps and the rest of its life work on these parts.
//
//   RuntimePlan       options, policies, and what follows from them
//   SequenceProgress  phase, length, prompt, budget
//   SequenceWork      queues, waits, counts
//   SequenceMemory    device blocks and pages, and how room is made for them
//   SequenceRows      where rows are: host pages, device blocks
//   SequenceIndexes   what selection reads: built, extended, cut, renewed
//   SequenceCache     copies of rows that are wanted again
//   SequenceRetention what stays of tokens that have left the window
//   Workspace         memory that a step's ops use
//   MassSampler       how much of full attention's weight steps attend to
//   Layer             each layer's part of these
#pragma once

#include "cache/selection_report.hpp"
#include "cache/sequence_cache.hpp"
#include "index/sequence_indexes.hpp"
#include "layer/layer.hpp"
#include "mass_sampler.hpp"
#include "retention/sequence_retention.hpp"
#include "runtime_state.hpp"
#include "sequence_rows.hpp"
#include "services/sequence_services.hpp"
#include "workspace.hpp"

namespace terrace {

struct SequenceParts {
  SequenceParts(RuntimeState& runtime, MemoryHolder& holder, Lanes lanes);

  const RuntimePlan& plan;
  SequenceProgress progress;
  SequenceWork work;
  const SequenceMemory memory;
  Layers layers;
  SequenceRows rows;
  SequenceIndexes indexes;
  SequenceCache cache;
  SequenceRetention retention;
  Workspace workspace;
  SelectionReport report;
  MassSampler mass;

  /// Last positions of a prompt whose queries policies ask for.
  [[nodiscard]] std::size_t query_window_tokens() const noexcept;
  /// Whether policies ask for keys before RoPE.
  [[nodiscard]] bool needs_pre_rope_keys() const noexcept;

  /// Waits for all work, of the compute queue too, and clears failed queues. Returns whether all
  /// queues are quiesced; if not, tickets tell which work has not ended.
  bool come_to_rest() { return come_to_rest(work.deadline); }
  bool come_to_rest(Duration patience);

  /// Returns `done`. After a failure that would come again, all queues are quiesced and cleared.
  Status recovering(const Status& done);
  /// Recovers after a failure, with quiesced queues: any copy may be missing. Only data on the
  /// host, and resident rows below the length, can be relied on.
  void recover();

  /// Waits for indexes, and for the decisions of retention.
  Status await_indexes();

  /// A prompt's rows up to `end` are to lie on the host: has those on the device, too, that the
  /// placement or the cache keeps there, as far as there is memory.
  void place_prompt(std::size_t end);

  /// Loads what the next step needs. Where it cannot, the sequence is paused or lost.
  Status load_window();

  /// Pauses. The queues must be quiesced.
  void pause();
  /// Pauses after a failure; the sequence is lost if the queues do not quiesce.
  void pause_or_lose();
  void give_up_device_memory();

 private:
  [[nodiscard]] SequenceServices services(RuntimeState& runtime) noexcept;
  [[nodiscard]] bool has_failed_work() const;
};

}  // namespace terrace
