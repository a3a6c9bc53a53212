// Checks for kernels that read rows for an index, made before they begin, because these kernels are
// not called through an op that validates its arguments. Blocks and chunks are checked one by one,
// which takes little time beside the work on their tokens.
#pragma once

#include <string_view>

#include "terrace/core/memory_range.hpp"
#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// The rows of some tokens.
struct TokenRows {
  const KvShape& shape;
  const BlockTable& rows;
  TokenRange tokens;
};

/// Errors: invalid_argument, in the name of `kernel`, unless every block that has one of the tokens
/// is there.
[[nodiscard]] Status check_rows(std::string_view kernel, const TokenRows& source);

/// Whether memory overlaps rows, which must have been checked.
[[nodiscard]] bool overlaps_rows(const MemoryRange& written, const TokenRows& source) noexcept;

/// Errors: invalid_argument, in the name of `kernel`, unless every chunk that has one of the
/// tokens is there. Whether it is apart from rows is not looked at: a long prompt has thousands of
/// both.
[[nodiscard]] Status check_chunks(std::string_view kernel, TokenRange tokens,
                                  const IndexView& index);

}  // namespace terrace::kernels::host
