// Logits from codes of one or two bits and queries in whole numbers.
#pragma once

#include <cstddef>

namespace terrace::kernels::host {

inline constexpr std::size_t queries_of_codes_max = 4;

/// Some codes, each of `code_bytes` bytes, and queries of a group.
struct CodeLogits {
  const std::byte* const* codes = nullptr;  ///< [count]
  const float* factors = nullptr;           ///< [count]
  std::size_t count = 0;
  std::size_t bits = 2;
  std::size_t code_bytes = 0;
  std::size_t dims = 0;
  const float* queries = nullptr;  ///< [query_count, dims]: whole numbers up to refine_query_max
  const float* units = nullptr;    ///< [query_count]
  std::size_t query_count = 0;     ///< at most queries_of_codes_max
  float* logits = nullptr;         ///< out [query_count, stride]
  std::size_t stride = 0;
};

/// Writes factor * (unit * product). Products are exact, so that logits are the same on every
/// instruction set.
void write_code_logits(const CodeLogits& op) noexcept;

}  // namespace terrace::kernels::host
