#include "host/word_bits.hpp"

#ifdef __x86_64__
#include "host/x86_instructions.hpp"

namespace terrace::kernels::host {

bool has_word_bits_lookup() noexcept {
  return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vbmi") != 0;
}

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vbmi")

std::uint64_t look_up(const WordBits& words, const CodePlanes& codes, std::size_t count) noexcept {
  const __mmask64 there = count < 64 ? (std::uint64_t{1} << count) - 1 : ~std::uint64_t{0};
  const __m512i code_bits = _mm512_set1_epi8(static_cast<char>((1U << codes.bits) - 1));
  const __m512i first = _mm512_and_si512(code_bits, _mm512_maskz_loadu_epi8(there, codes.first));
  const __m512i second = _mm512_and_si512(code_bits, _mm512_maskz_loadu_epi8(there, codes.second));
  __m512i bytes[8];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = _mm512_permutexvar_epi8(first, _mm512_load_si512(words.bytes[i].data()));
  }
  // Three bits of the second code choose the byte, three the bit in it.
  const __mmask64 has_8 = _mm512_test_epi8_mask(second, _mm512_set1_epi8(8));
  const __mmask64 has_16 = _mm512_test_epi8_mask(second, _mm512_set1_epi8(16));
  const __mmask64 has_32 = _mm512_test_epi8_mask(second, _mm512_set1_epi8(32));
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    bytes[i] = _mm512_mask_blend_epi8(has_8, bytes[2 * i], bytes[2 * i + 1]);
  }
  bytes[0] = _mm512_mask_blend_epi8(has_16, bytes[0], bytes[1]);
  bytes[2] = _mm512_mask_blend_epi8(has_16, bytes[2], bytes[3]);
  bytes[0] = _mm512_mask_blend_epi8(has_32, bytes[0], bytes[2]);
  const __m512i bits =
      _mm512_shuffle_epi8(_mm512_set1_epi64(static_cast<long long>(0x8040201008040201ULL)),
                          _mm512_and_si512(second, _mm512_set1_epi8(7)));
  return _mm512_mask_test_epi8_mask(there, bytes[0], bits);
}

HWY_POP_ATTRIBUTES

}  // namespace terrace::kernels::host

#else

namespace terrace::kernels::host {

bool has_word_bits_lookup() noexcept { return false; }

std::uint64_t look_up(const WordBits& words, const CodePlanes& codes, std::size_t count) noexcept {
  const unsigned code_bits = (1U << codes.bits) - 1;
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned second = codes.second[i] & code_bits;
    const unsigned byte = words.bytes[second / 8][codes.first[i] & code_bits];
    bits |= std::uint64_t{byte >> second % 8 & 1U} << i;
  }
  return bits;
}

}  // namespace terrace::kernels::host

#endif
