// Observes the selections of steps, to record traces.
//
// For each sequence the calls come in the order of its steps; those of several sequences come at
// the same time, from their threads. They carry all inputs of a resident cache, so that a replay
// gives the same hits, bytes and evictions: up to a sequence's first on_loss. An
// observer must not call the sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "terrace/core/ids.hpp"
#include "terrace/core/ops.hpp"
#include "terrace/core/replacement.hpp"

namespace terrace {

/// A cluster of one KV head that a step wants rows of.
struct WantedCluster {
  UnitKey unit = 0;
  std::uint32_t rows_wanted = 0;  ///< without those in device memory whatever is cached
  std::uint32_t size_rows = 0;
};

/// The tokens of a layer that stay in device memory when a prompt is about to be stored: all from
/// `placed_begin` on and, where blocks are cached, the last of the prompt's blocks before
/// `window_begin`, as many as the cache has slots.
struct LayerPrompt {
  SequenceId sequence{};
  LayerId layer{};
  TokenRange tokens = {};
  std::size_t window_begin = 0;  ///< of the token after the prompt
  std::size_t placed_begin = 0;  ///< before `window_begin` where tokens wait for the index
};

/// The rows that one layer of one step wanted from the middle, by positions and by clusters,
/// whichever of the two the cache keeps. Spans are valid during the call only.
struct LayerSelection {
  SequenceId sequence{};
  LayerId layer{};
  std::size_t position = 0;  ///< of the step's token
  TokenRange sinks = {};
  TokenRange window = {};
  /// Blocks [0, resident_head) and [resident_tail, ...) are in device memory without the cache.
  std::size_t resident_head = 0;
  std::size_t resident_tail = 0;
  std::span<const std::uint32_t> positions =
      {};  ///< distinct, ascending, one KV head after another
  std::span<const std::uint32_t> head_counts = {};  ///< [kv_heads] of them
  std::span<const WantedCluster> clusters = {};     ///< ascending; none where the policy has none
  bool clusters_renamed = false;  ///< since the layer's last step: their keys mean others now
};

/// The contents of device memory for a layer once its sequence was cut or resumed: sinks and
/// window, and the units of the middle that the cache still holds. A cut drops the blocks from the
/// cut on, then those that the window has now, and all clusters.
struct LayerLoad {
  SequenceId sequence{};
  LayerId layer{};
  std::size_t position = 0;      ///< of the next token
  std::size_t window_begin = 0;  ///< blocks that end before it are not offered to the cache again
  std::uint64_t loaded_bytes = 0;
};

/// The bytes that a step moved beside missed and refilled rows.
struct StepTraffic {
  SequenceId sequence{};
  std::uint64_t offload_bytes = 0;
  std::uint64_t index_bytes = 0;  ///< both ways
  std::uint64_t ids_bytes = 0;    ///< of these, selected ids, to the host
};

class SelectionObserver {
 public:
  SelectionObserver() = default;
  SelectionObserver(const SelectionObserver&) = delete;
  SelectionObserver& operator=(const SelectionObserver&) = delete;
  virtual ~SelectionObserver() = default;

  /// `sharers` sequences share the cache from this sequence's next step on.
  virtual void on_share(SequenceId sequence, std::size_t sharers) = 0;
  /// Called for each layer.
  virtual void on_prompt(const LayerPrompt& prompt) = 0;
  virtual void on_selection(const LayerSelection& selection) = 0;
  virtual void on_step_end(const StepTraffic& traffic) = 0;
  /// A step was given up or could not begin, or device memory was too small for the units that the
  /// cache was to keep. The contents of the cache are not known from now on.
  virtual void on_loss(SequenceId sequence) = 0;
  /// The sequence gives up all its device memory; on_load lists the data that comes back.
  virtual void on_pause(SequenceId sequence) = 0;
  virtual void on_load(const LayerLoad& load) = 0;
  /// The last call for a sequence.
  virtual void on_close(SequenceId sequence) = 0;
};

}  // namespace terrace
