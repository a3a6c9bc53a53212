#include "checks.hpp"

namespace terrace {

using namespace op_arguments;

namespace {

Status require_codes(std::string_view op, const KvShape& shape, const PqShape& pq,
                     const IndexView& index) {
  return require(op, {{pq.subspaces > 0 && shape.head_dim % pq.subspaces == 0,
                       "pq.subspaces must divide head_dim"},
                      {pq.bits >= 1 && pq.bits <= 8, "pq.bits must be 1 to 8"},
                      {index.fixed != nullptr, "the index must have codebooks"}});
}

}  // namespace

Status validate(const PqSelect& op) {
  constexpr std::string_view name = "pq_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  TERRACE_TRY(require_codes(name, op.common.shape, op.pq, op.index));
  const KvShape& shape = op.common.shape;
  const SelectionViews views(op.common, shape.kv_heads,
                             selection_scratch_floats(shape, op.common.candidates.size()));
  const std::size_t codebook_floats = shape.kv_heads * op.pq.centroids() * shape.head_dim;
  const View codebooks{"index.fixed", range_of(op.index.fixed, codebook_floats * sizeof(float))};
  return require_apart(name, {views.ids, views.id_count, views.scratch},
                       {views.query, views.shares, codebooks});
}

Status validate(const ExactSelect& op) {
  constexpr std::string_view name = "exact_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const SelectionViews views(
      op.common, op.common.shape.kv_heads,
      selection_scratch_floats(op.common.shape, op.common.candidates.size()));
  return require_apart(name, views);
}

Status validate(const ChannelSelect& op) {
  constexpr std::string_view name = "channel_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const KvShape& shape = op.common.shape;
  const std::size_t count = op.channels.count;
  TERRACE_TRY(
      require(name, {{count > 0 && count <= shape.head_dim, "channels.count must be 1 to head_dim"},
                     {!op.channels.partial || op.index.fixed != nullptr,
                      "an index that is partial must say which channels it has"}}));
  const auto* const stored = reinterpret_cast<const std::uint32_t*>(op.index.fixed);
  const SelectionViews views(op.common, shape.kv_heads,
                             selection_scratch_floats(shape, op.common.candidates.size()));
  return require_apart(
      name, {views.ids, views.id_count, views.scratch},
      {views.query,
       views.shares,
       {"index.fixed", range_of(stored, op.channels.partial ? shape.kv_heads * count : 0)}});
}

Status validate(const PageSelect& op) {
  constexpr std::string_view name = "page_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  TERRACE_TRY(
      require(name, {{op.pages.page_tokens > 0 && op.index.chunk_tokens % op.pages.page_tokens == 0,
                      "pages.page_tokens must divide index.chunk_tokens"}}));
  const KvShape& shape = op.common.shape;
  const SelectionViews views(op.common, shape.kv_heads,
                             page_scratch_floats(shape, op.pages, op.common.candidates.size()));
  return require_apart(name, views);
}

Status validate(const RefineSelect& op) {
  constexpr std::string_view name = "refine_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const KvShape& shape = op.common.shape;
  const RefineShape& codes = op.codes;
  if (codes.pq.subspaces > 0) TERRACE_TRY(require_codes(name, shape, codes.pq, op.index));
  TERRACE_TRY(
      require(name, {{codes.bits == 1 || codes.bits == 2, "codes.bits must be 1 or 2"},
                     {codes.chunk_begin % 4 == 0, "codes.chunk_begin must be a multiple of 4"},
                     {op.proposed_count != nullptr, "proposed_count must be given"},
                     {op.proposed_stride == 0 || op.proposed != nullptr, "proposed must be given"},
                     {op.proposed_stride <= limit, "proposed_stride must not be above 2^32"}}));
  const SelectionViews views(op.common, shape.kv_heads,
                             refine_scratch_floats(shape, op.proposed_stride));
  return require_apart(
      name, {views.ids, views.id_count, views.scratch},
      {views.query,
       views.shares,
       {"proposed", range_of(op.proposed, times(shape.kv_heads, op.proposed_stride))},
       {"proposed_count", range_of(op.proposed_count, shape.kv_heads)}});
}

}  // namespace terrace
