// The table of retrieval policies.
//
//   auto policy = policies::make_retrieval_policy("pqcache", {.pq = {.subspaces = 2, .bits = 6}});
//
// One policy is one file in policies/src/retrieval/ and one row in table.cpp; tests, `terrace run`
// and benches walk the table.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace::policies {

struct ClusterKvOptions {
  std::size_t tokens_per_cluster = 80;
  ListScope lists = ListScope::kv_head;
};

/// Settings of all retrieval policies; each reads its own.
struct RetrievalOptions {
  PqShape pq;
  ClusterKvOptions clusterkv;
  GroupReduction reduction = GroupReduction::sum_softmax;
};

struct RetrievalEntry {
  std::string_view name;
  std::string_view meaning;  ///< one line, for --help
  Result<std::unique_ptr<RetrievalPolicy>> (*make)(const RetrievalOptions&);
};

/// Returns all retrieval policies, in the order of the table.
std::span<const RetrievalEntry> retrieval_policies() noexcept;

/// Makes the policy of that name.
/// Errors: invalid_argument naming the known policies, or the setting that is out of range.
Result<std::unique_ptr<RetrievalPolicy>> make_retrieval_policy(
    std::string_view name, const RetrievalOptions& options = {});

}  // namespace terrace::policies
