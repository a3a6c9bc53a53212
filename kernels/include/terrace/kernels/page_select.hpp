// Choosing whole pages of consecutive tokens: see PageSelect.
#pragma once

#include "terrace/core/bytes.hpp"
#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels {

/// Returns the floats of SelectCommon::scratch for at most `tokens` candidates: per KV head the
/// group's page scores, weights and an order, and the group's queries.
constexpr std::size_t page_scratch_floats(const KvShape& shape, const PageShape& pages,
                                          std::size_t tokens) noexcept {
  const std::size_t row = align_up(tokens / pages.page_tokens + 2, 64);
  return shape.kv_heads * ((shape.group() + 2) * row + shape.group() * pages.dims(shape));
}

namespace host {

/// Order    NaN as SelectCommon says; ties go to the lower page. A score by bounds is NaN, too,
/// where
///          one of both bounds of an element is infinite and the query's sign asks for the other
/// Threads  one part per KV head; results do not depend on threads; allocates nothing
/// Cost     a product per page and query head
/// Source   channel-wise bounds: Quest, Tang et al. 2024
/// Tests    tests/kernels/page_select_test.cpp
void page_select(const PageSelect& op, Parallel& threads);

}  // namespace host
}  // namespace terrace::kernels
