// What kernels ask of the instruction set in use beside what Highway dispatches on.
#pragma once

namespace terrace::kernels::host {

/// Whether bits of code words are looked up 64 at once (word_bits.hpp).
bool looks_up_word_bits() noexcept;

/// Whether searches between iterations of clustering are of bf16 (bf16_search.hpp): forced by
/// use_isa(), else where that is faster, which the first call measures.
bool searches_in_bf16() noexcept;

}  // namespace terrace::kernels::host
