#include "terrace/core/op_arguments.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace terrace {
namespace {

constexpr std::size_t limit = std::size_t{1} << 32;  // ids are 32-bit

struct Requirement {
  bool met;
  std::string_view text;
};

/// Names the first requirement that is not met.
Status require(std::string_view op, std::initializer_list<Requirement> requirements) {
  const auto* const broken = std::ranges::find(requirements, false, &Requirement::met);
  if (broken == requirements.end()) return {};
  return fail(Errc::invalid_argument, "{}: {}", op, broken->text);
}

bool is_range(TokenRange tokens) { return tokens.begin <= tokens.end && tokens.end <= limit; }

Status require_index(std::string_view op, const KvShape& shape, TokenRange tokens,
                     const IndexView& index) {
  if (const Status valid = shape.validate(); !valid) {
    return tl::unexpected(valid.error().while_doing(op));
  }
  return require(op, {{is_range(tokens), "tokens must be a range below 2^32"},
                      {index.chunk_tokens > 0 && index.chunk_tokens <= limit,
                       "the index must have chunks of 1 to 2^32 tokens"},
                      {tokens.empty() || index.chunks != nullptr, "the index must be given"},
                      {tokens.empty() || index.first_token <= tokens.begin,
                       "tokens must not begin before the index"}});
}

Status require_codes(std::string_view op, const KvShape& shape, const PqShape& pq,
                     const IndexView& index) {
  return require(op, {{pq.subspaces > 0 && shape.head_dim % pq.subspaces == 0,
                       "pq.subspaces must divide head_dim"},
                      {pq.bits >= 1 && pq.bits <= 8, "pq.bits must be 1 to 8"},
                      {index.fixed != nullptr, "the index must have codebooks"}});
}

Status require_selection(std::string_view op, const SelectCommon& common, const IndexView& index) {
  TERRACE_TRY(require_index(op, common.shape, common.candidates, index));
  const std::size_t listed = std::min(common.count.mean, common.candidates.size());
  return require(
      op, {{common.id_count != nullptr, "id_count must be given"},
           {listed == 0 || common.ids != nullptr, "ids must be given"},
           {listed <= common.id_stride, "count must not be above id_stride"},
           {common.candidates.empty() || common.query != nullptr, "query must be given"},
           {common.candidates.empty() || common.scratch != nullptr, "scratch must be given"}});
}

}  // namespace

Status validate(const PqSelect& op) {
  constexpr std::string_view name = "pq_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  return require_codes(name, op.common.shape, op.pq, op.index);
}

Status validate(const ExactSelect& op) {
  return require_selection("exact_select", op.common, op.index);
}

Status validate(const PageSelect& op) {
  constexpr std::string_view name = "page_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  return require(name,
                 {{op.pages.page_tokens > 0 && op.index.chunk_tokens % op.pages.page_tokens == 0,
                   "pages.page_tokens must divide index.chunk_tokens"}});
}

Status validate(const ClusterSelect& op) {
  constexpr std::string_view name = "cluster_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const bool estimates = op.clusters.estimates;
  return require(
      name,
      {{op.clusters.slots > 0 && op.clusters.slots <= limit, "clusters.slots must be 1 to 2^32"},
       {op.clusters.chunk_tokens == op.index.chunk_tokens,
        "clusters.chunk_tokens must be the index's"},
       {estimates || (op.estimated == 0 && op.mass == nullptr && !op.spreads),
        "estimated, mass and spreads need clusters.estimates"},
       {op.estimated == 0 || op.scope == ListScope::kv_head, "estimates are per KV head"},
       {op.estimated == 0 ||
            (op.pseudo.rows != nullptr && op.pseudo.bias != nullptr && op.pseudo.count != nullptr),
        "pseudo must be given"},
       {op.estimated <= op.pseudo.stride, "estimated must not be above pseudo.stride"},
       {op.mass == nullptr || op.resident.blocks != nullptr, "mass needs resident"},
       {op.resident.blocks == nullptr || op.resident.block_tokens > 0,
        "resident.block_tokens must not be 0"},
       {is_range(op.sinks) && is_range(op.window), "sinks and window must be ranges below 2^32"}});
}

}  // namespace terrace
