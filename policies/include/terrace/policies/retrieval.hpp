// The table of retrieval policies.
//
//   auto policy = policies::make_retrieval_policy("pqcache", {.pq = {.subspaces = 2, .bits = 6}});
//
// One policy is one file in policies/src/retrieval/ and one row in table.cpp, which checks no
// settings: makers do. Tests, benches and `terrace run --policy all` walk the table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/core/retrieval.hpp"
#include "terrace/kernels/kmeans.hpp"

namespace terrace::policies {

struct QuestOptions {
  std::size_t page_tokens = 16;  ///< divides 256
};

struct InfLlmOptions {
  std::size_t block_tokens = 128;   ///< divides 256
  std::size_t representatives = 4;  ///< keys of a block whose mean stands for it
};

struct SparqOptions {
  std::size_t channels = 0;  ///< of a key that are read; 0 = a quarter of head_dim
};

struct InfiniGenOptions {
  double ratio = 0.3;  ///< of a key's channels that are kept, above 0
};

struct WaveOptions {
  std::size_t tokens_per_cluster = 16;
  std::size_t segment_tokens = 2048;  ///< clustered on its own; a multiple of 256
  kernels::Metric metric = kernels::Metric::l2;
  ClusterRanking ranking = ClusterRanking::token_weight;
  double estimated_share = 1;  ///< of all clusters; of those not chosen the best are estimated
  bool spreads = false;        ///< estimates count how far members lie apart
};

struct SignsOptions {
  /// Whether what is not selected is attended to as means of groups, and whether these take the
  /// place of rows.
  enum class Estimates : std::uint8_t { off, on, in_budget };

  std::size_t group_tokens = 16;  ///< in the mean; divides 64
  Estimates estimates = Estimates::on;
};

struct QpqOptions {
  double shrinkage =
      0.7;  ///< 1: all queries count alike; 0: the queries of the prompt's end, unchanged
};

struct ClusterKvOptions {
  std::size_t tokens_per_cluster = 80;
  ListScope lists = ListScope::kv_head;
};

/// A second stage: `factor` times as many rows are proposed, and scored again by codes of `bits`
/// bits an element.
struct RefineOptions {
  std::size_t bits = 0;  ///< 1 or 2; 0 = there is no second stage
  std::size_t factor = 4;
};

/// Estimates of what is not selected: of each group of alike tokens the rows that are not are one
/// entry of attention.
struct EstimateOptions {
  std::size_t group_tokens = 0;  ///< in the mean; divides 64. 0 = nothing is estimated
  bool in_budget = false;        ///< entries take the place of rows
};

/// Settings of all retrieval policies; each reads its own.
struct RetrievalOptions {
  RefineOptions refine = {};       ///< of every policy that selects by an index
  EstimateOptions estimates = {};  ///< of every policy that selects rows by an index
  PqShape pq = {};
  QpqOptions qpq = {};
  QuestOptions quest = {};
  InfLlmOptions infllm = {};
  SparqOptions sparq = {};
  InfiniGenOptions infinigen = {};
  ClusterKvOptions clusterkv = {};
  WaveOptions wave = {};
  SignsOptions signs = {};
  GroupReduction reduction = GroupReduction::sum_softmax;
};

struct RetrievalEntry {
  std::string_view name;
  std::string_view meaning;  ///< one line, for --help
  Result<std::unique_ptr<RetrievalPolicy>> (*make)(const RetrievalOptions&);
};

/// Returns all retrieval policies, in the order of the table.
std::span<const RetrievalEntry> retrieval_policies() noexcept;

/// Makes the policy of that name, with a second stage if the options say so.
/// Errors: invalid_argument naming the known policies, or the setting that is out of range.
Result<std::unique_ptr<RetrievalPolicy>> make_retrieval_policy(
    std::string_view name, const RetrievalOptions& options = {});

}  // namespace terrace::policies
