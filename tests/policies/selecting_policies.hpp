// The retrieval policies that select rows, or whole clusters of them, for suites that hold each of
// them to the same promises.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "terrace/policies/retrieval.hpp"

namespace terrace::testing {

/// Returns the settings that suites of each policy take: a second stage of as many bits as
/// TERRACE_TEST_REFINE says, none without it.
inline policies::RetrievalOptions retrieval_options() {
  const char* const bits = std::getenv("TERRACE_TEST_REFINE");
  policies::RetrievalOptions options;
  if (bits != nullptr) options.refine.bits = std::strtoull(bits, nullptr, 10);
  return options;
}

/// Returns their names in the order of the table.
inline std::vector<std::string> selecting_policies() {
  std::vector<std::string> names;
  for (const auto& entry : policies::retrieval_policies()) {
    if (policies::make_retrieval_policy(entry.name).value()->traits().selects) {
      names.emplace_back(entry.name);
    }
  }
  return names;
}

/// Returns the names of those whose clusters can be cached.
inline std::vector<std::string> clustering_policies() {
  std::vector<std::string> names;
  for (const std::string& name : selecting_policies()) {
    const auto policy = policies::make_retrieval_policy(name).value();
    if (policy->index_layout({.layers = 1, .query_heads = 2, .kv_heads = 2, .head_dim = 16})
            .value()
            .chunk_clusters > 0) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace terrace::testing
