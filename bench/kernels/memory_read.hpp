// The plainest use of memory: other rows are compared with it.
#pragma once

#include <cstddef>
#include <span>

#include "harness/question.hpp"

namespace terrace::bench {

/// Reads every byte of 8-byte words and returns their sum, so that nothing is left out.
std::uint64_t sum_words(std::span<const std::byte> memory);

/// Returns the contender that reads `memory` from one end to the other.
Contender memory_read(std::span<const std::byte> memory);

}  // namespace terrace::bench
