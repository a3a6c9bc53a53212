// The retrieval index of one layer on the host. It is authoritative; the device has a copy.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/cluster_units.hpp"
#include "index_coverage.hpp"
#include "index_memory.hpp"
#include "kept_hints.hpp"
#include "terrace/core/queue.hpp"

namespace terrace {

struct SequenceContext;

/// The record of a build: written on the cluster queue, read once its ticket is done.
struct BuildRecord {
  Status status;
  BuildReport report;
  KeptHints hints;           ///< that it is built with
  TimePoint rows_arrived{};  ///< when the host had the rows to build from
  TimePoint begin{};
  TimePoint end{};
};

/// An index that another one has taken the place of in the middle of a step.
struct ReplacedIndex {
  IndexMemory host{Tier::host};
  IndexCoverage coverage;
  KeptHints hints;  ///< of a draft
};

/// The index before the step that brings the last of a prompt, for when the step is given up.
struct BeforePrompt {
  IndexCoverage coverage;
  std::vector<std::byte> chunk;  ///< the last one, where it is not full: extensions change no other
  std::size_t pre_rope_keys = 0;  ///< kept hints
  std::vector<float> attention_scores;
};

struct LayerIndex {
  IndexMemory host{Tier::host};
  IndexCoverage coverage;
  std::optional<KeptHints> hints;  ///< of a prompt that comes in steps, until it is indexed
  KeptHints piece_hints;           ///< of the piece that a step brings, until it has ended
  Ticket coded;                    ///< last build or extension, on the cluster queue
  Ticket uploaded;                 ///< last copy to the device, on the index queue
  bool building = false;           ///< a build is enqueued and has not been waited for
  TokenRange hidden_by;            ///< prompt whose compute is to hide the build; empty = none
  BuildRecord build;

  /// Another number: clusters have other names. The first index has 1.
  std::uint64_t epoch = 1;
  /// Which rows belong to which cluster, as they were read last.
  ClusterMembers members;
  bool members_stale = true;  ///< clusters have got other rows since

  /// Until the step has ended: what was there before an index was built during it.
  std::optional<ReplacedIndex> replaced;
  BeforePrompt before_prompt;
  /// Keeps a copy of what is there. Coding of it must have ended. Errors: out_of_memory.
  Status keep_replaced(Backend& backend, const IndexLayout& layout);
  void put_back_replaced() noexcept;
  /// Notes what there is. Coding must have ended.
  void note_before_prompt(const IndexLayout& layout);
  /// Has what there was before the step. Nothing is being coded.
  void put_back_before_prompt(const IndexLayout& layout) noexcept;
  /// Has the hints that there were before the step.
  void put_back_hints() noexcept;

  /// Reads `members` if they have changed. Coding must have ended.
  void read_members(const SequenceContext& context);

 private:
  /// The chunk in which an index of these tokens ends; null if that chunk is full, or missing.
  [[nodiscard]] std::byte* open_chunk(const IndexLayout& layout, TokenRange tokens) const noexcept;
};

}  // namespace terrace
