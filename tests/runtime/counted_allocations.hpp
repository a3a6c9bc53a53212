// Counts what threads take from the heap. A program that has it replaces `operator new`.
#pragma once

#include <cstddef>

namespace terrace::testing {

/// Returns how often the calling thread has taken memory from the heap by `new` so far.
[[nodiscard]] std::size_t allocations() noexcept;

}  // namespace terrace::testing
