// The retrieval index of one layer, as the host holds it: the truth, of which the device has a
// copy.
#pragma once

#include <cstdint>
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
  TimePoint rows_arrived{};  ///< when the host had the rows to build from
  TimePoint begin{};
  TimePoint end{};
};

struct LayerIndex {
  IndexMemory host{Tier::host};
  IndexCoverage coverage;
  KeptHints hints;
  Ticket coded;           ///< last build or extension, on the cluster queue
  Ticket uploaded;        ///< last copy to the device, on the index queue
  bool building = false;  ///< a build is enqueued and has not been waited for
  TokenRange hidden_by;   ///< prompt whose compute is to hide the build; empty = none
  BuildRecord build;

  /// Another number: clusters have other names. The first index has 1.
  std::uint64_t epoch = 1;
  /// Which rows belong to which cluster, as they were read last.
  ClusterMembers members;
  bool members_stale = true;  ///< clusters have got other rows since

  /// Reads `members` if they have changed. Coding must have ended.
  void read_members(const SequenceContext& context);
};

}  // namespace terrace
