#include <array>

#include "../name_lookup.hpp"
#include "rows.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::policies {
namespace {

constexpr std::array table{
    RetrievalEntry{"full", "attends to everything, all of it in device memory", &make_full},
    RetrievalEntry{"streaming", "sinks and recent tokens only (StreamingLLM)", &make_streaming},
    RetrievalEntry{"oracle", "exact top-k by true scores: the bound of all selection",
                   &make_oracle},
    RetrievalEntry{"pqcache", "top-k by product-quantised scores (PQCache)", &make_pqcache},
    RetrievalEntry{"clusterkv", "whole clusters of similar keys (ClusterKV)", &make_clusterkv},
};

}  // namespace

std::span<const RetrievalEntry> retrieval_policies() noexcept { return table; }

Result<std::unique_ptr<RetrievalPolicy>> make_retrieval_policy(std::string_view name,
                                                               const RetrievalOptions& options) {
  TERRACE_ASSIGN(const RetrievalEntry* entry,
                 find_by_name(retrieval_policies(), "retrieval.policy", name));
  return entry->make(options);
}

}  // namespace terrace::policies
