// The retrieval policies that select rows, for suites that hold each of them to the same promises.
#pragma once

#include <string>
#include <vector>

#include "terrace/policies/retrieval.hpp"

namespace terrace::testing {

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

}  // namespace terrace::testing
