// The retrieval index of one layer on the host, which is authoritative: the device has a copy.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cluster_units.hpp"
#include "index_image.hpp"
#include "kept_hints.hpp"
#include "terrace/core/queue.hpp"

namespace terrace {

class RuntimePlan;

/// The record of a build: written on the cluster queue, read once its ticket is done.
struct BuildRecord {
  Status status;
  BuildReport report;
  KeptHints hints;           ///< that it is built with
  TimePoint rows_arrived{};  ///< when the host had the rows to build from
  TimePoint begin{};
  TimePoint end{};
};

/// Which clusters there are, for caches that know clusters by their numbers.
class ClusterNames {
 public:
  /// Another number: clusters have other names. The first index has 1.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  /// The index is another one: clusters get the names of those that go.
  void rename() noexcept {
    ++epoch_;
    members_stale_ = true;
  }
  /// Clusters have got or lost rows.
  void note_change() noexcept { members_stale_ = true; }

  /// Reads which rows belong to which cluster, if that has changed. Coding must have ended.
  void read_members(const RuntimePlan& plan, const IndexImage& image);
  /// As they were read last.
  [[nodiscard]] const ClusterMembers& members() const noexcept { return members_; }

 private:
  std::uint64_t epoch_ = 1;
  bool members_stale_ = true;
  ClusterMembers members_;
};

struct LayerIndex {
  IndexImage image;
  ClusterNames clusters;

  std::optional<KeptHints> hints;  ///< of a prompt that comes in steps, until it is indexed
  KeptHints piece_hints;           ///< of the piece that a step brings, until it has ended
  Ticket coded;                    ///< last build or extension, on the cluster queue
  Ticket uploaded;                 ///< last copy to the device, on the index queue
  bool building = false;           ///< a build is enqueued and has not been waited for
  TokenRange hidden_by;            ///< prompt whose compute is to hide the build; empty = none
  BuildRecord build;

  // A step may turn out not to have been: the index is kept as it was before.

  /// Notes the index, which changes from now on. Neither coding nor copying of it is under way.
  /// Errors: out_of_memory.
  Status keep(Backend& backend);
  [[nodiscard]] bool has_kept() const noexcept { return kept_.has_value(); }
  void forget_kept() noexcept { kept_.reset(); }
  /// Restores the index that was kept, and its hints. Nothing is being coded or copied.
  void put_back();
  /// Restores only the hints.
  void put_back_hints();

 private:
  /// Keys are only added to hints; the other ones are replaced.
  struct Kept {
    IndexImage image;
    std::size_t pre_rope_keys = 0;
    std::vector<float> query_window;
    std::vector<float> attention_scores;
  };

  std::optional<Kept> kept_;
};

}  // namespace terrace
