// Choosing whole pages of consecutive tokens: see PageSelect.
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels::host {

/// Order    NaN as SelectCommon says; ties go to the lower page. A score by bounds is NaN, too, if
///          one of both bounds of an element is infinite and the query's sign asks for the other
/// Threads  one part per KV head; results do not depend on threads; allocates nothing
/// Cost     a product per page and query head
/// Source   channel-wise bounds: Quest, Tang et al. 2024
/// Tests    tests/kernels/page_select_test.cpp
void page_select(const PageSelect& op, Parallel& threads);

}  // namespace terrace::kernels::host
