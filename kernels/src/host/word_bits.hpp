// Which code words are kept, looked up for 64 candidates at once: 64 codes fill one register of a
// CPU that can use it as a table of bytes (AVX-512 VBMI).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace::kernels::host {

/// Codes of consecutive candidates: planes of one or two sub-spaces.
struct CodePlanes {
  const std::uint8_t* first;
  const std::uint8_t* second;  // nullptr: one sub-space
  std::size_t bits;
};

constexpr std::size_t word_bits_codes = 64;  // of a sub-space, at most

/// A bit for each word of two codes.
struct WordBits {
  // Bit s % 8 of bytes[s / 8][f] is that of the word with first code f and second code s.
  alignas(64) std::array<std::array<std::uint8_t, word_bits_codes>, word_bits_codes / 8> bytes{};
};

/// Whether this CPU has the instructions.
bool has_word_bits_lookup() noexcept;

/// Returns the bits of up to 64 candidates, bit i for candidate i. Two sub-spaces; of codes only
/// their `bits` count.
std::uint64_t look_up(const WordBits& words, const CodePlanes& codes, std::size_t count) noexcept;

}  // namespace terrace::kernels::host
