// The retrieval policies that select rows, or whole clusters of them, for suites that hold each of
// them to the same promises.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "terrace/policies/retrieval.hpp"

namespace terrace::testing {

/// Returns the number that a variable of the environment has, 0 without it.
inline std::size_t number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

/// Returns the settings that suites of each policy take: a second stage of as many bits as
/// TERRACE_TEST_REFINE says, and estimates of groups of as many tokens as TERRACE_TEST_ESTIMATES
/// says; neither without it.
inline policies::RetrievalOptions retrieval_options() {
  policies::RetrievalOptions options;
  options.refine.bits = number_in("TERRACE_TEST_REFINE");
  options.estimates.group_tokens = number_in("TERRACE_TEST_ESTIMATES");
  return options;
}

/// Returns their names in the order of the table, less signs where it refuses a second stage.
inline std::vector<std::string> selecting_policies() {
  const bool signs_refuses = number_in("TERRACE_TEST_REFINE") == 1;
  std::vector<std::string> names;
  for (const auto& entry : policies::retrieval_policies()) {
    if (entry.name == "signs" && signs_refuses) continue;
    if (policies::make_retrieval_policy(entry.name).value()->traits().selects) {
      names.emplace_back(entry.name);
    }
  }
  return names;
}

/// Returns the names of policies with clusters that can be cached.
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
