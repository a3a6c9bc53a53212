#include <algorithm>
#include <array>

#include "../name_lookup.hpp"
#include "estimated.hpp"
#include "refined.hpp"
#include "rows.hpp"
#include "terrace/policies/retention.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::policies {
namespace {

constexpr std::array table{
    RetrievalEntry{"full", "attends to everything, all of it in device memory", &make_full},
    RetrievalEntry{"streaming", "sinks and recent tokens only (StreamingLLM)", &make_streaming},
    RetrievalEntry{"oracle", "exact top-k by true scores: the bound of all selection",
                   &make_oracle},
    RetrievalEntry{"pqcache", "top-k by product-quantised scores (PQCache)", &make_pqcache},
    RetrievalEntry{"qpq", "the same where queries look: query-aware quantisation", &make_qpq},
    RetrievalEntry{"clusterkv", "whole clusters of similar keys (ClusterKV)", &make_clusterkv},
    RetrievalEntry{"wave", "small clusters exact, others estimated, with bounds (after RetroInfer)",
                   &make_wave},
    RetrievalEntry{"signs",
                   "tokens by 1-bit codes (after RaBitQ), others estimated in small groups",
                   &make_signs},
    RetrievalEntry{"quest", "pages by the bounds of their keys (Quest)", &make_quest},
    RetrievalEntry{"infllm", "blocks by their most significant keys (InfLLM)", &make_infllm},
    RetrievalEntry{"sparq", "tokens by the channels that the query is largest in (SparQ)",
                   &make_sparq},
    RetrievalEntry{"infinigen", "tokens by a query guessed from the layer before (InfiniGen)",
                   &make_infinigen},
};

/// Names the key of retention policies, where one of these is asked for as retrieval.
Status check_not_retention(std::string_view name) {
  const auto is_named = [&](const RetentionEntry& entry) { return entry.name == name; };
  if (std::ranges::none_of(retention_policies(), is_named)) return {};
  return fail(Errc::invalid_argument,
              "retrieval.policy: {} drops tokens, and so is no retrieval policy; set "
              "retention.policy to {} and retrieval.policy to streaming",
              name, name);
}

}  // namespace

std::span<const RetrievalEntry> retrieval_policies() noexcept { return table; }

Result<std::unique_ptr<RetrievalPolicy>> make_retrieval_policy(std::string_view name,
                                                               const RetrievalOptions& options) {
  TERRACE_TRY(check_not_retention(name));
  TERRACE_ASSIGN(const RetrievalEntry* entry,
                 find_by_name(retrieval_policies(), "retrieval.policy", name));
  TERRACE_ASSIGN(std::unique_ptr<RetrievalPolicy> policy, entry->make(options));
  TERRACE_ASSIGN(policy, refined(std::move(policy), options));
  return estimated(std::move(policy), options);
}

}  // namespace terrace::policies
