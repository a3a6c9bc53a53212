// Seeds and lengths of model-based tests: fixed in the suite, changed by TERRACE_SEED and
// TERRACE_FUZZ_STEPS, and named by every failure.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace terrace {

inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

inline std::uint64_t fuzz_steps() { return number_from_environment("TERRACE_FUZZ_STEPS", 100'000); }
inline std::uint64_t fuzz_seed(std::uint64_t otherwise) {
  return number_from_environment("TERRACE_SEED", otherwise);
}

/// For SCOPED_TRACE: how to see a failure again.
inline std::string replay(std::uint64_t seed, std::uint64_t step) {
  return "TERRACE_SEED=" + std::to_string(seed) + ", step " + std::to_string(step);
}

}  // namespace terrace
