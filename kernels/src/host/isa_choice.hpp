// Questions of kernels about the instruction set in use, beside Highway's own dispatch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels::host {

/// Whether bits of code words are looked up 64 at once (word_bits.hpp).
bool looks_up_word_bits() noexcept;

/// How nearest centroids are searched between iterations of clustering: in f32, or by products of
/// bf16 in vectors (bf16_search.hpp) or tiles (amx_search.hpp).
enum class Search : std::uint8_t { f32, bf16, amx };

/// Returns the one forced by use_isa(), else the fastest, which the first call measures.
Search search_in_use() noexcept;

}  // namespace terrace::kernels::host
