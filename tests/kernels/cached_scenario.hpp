// A layer on the host, parts of it on the device, and slots for cached rows.
#pragma once

#include <vector>

#include "kernels/resolve_scenario.hpp"

namespace terrace::testing {

/// A resolve scenario with slots for cached rows.
class CachedScenario : public ResolveScenario {
 public:
  static constexpr std::size_t block_rows = 24;
  static constexpr std::size_t blocks = 40;

  CachedScenario(ListScope scope, std::size_t head_dim, std::size_t list_size = 60)
      : ResolveScenario(scope, 4, list_size, head_dim),
        numbers_(positions * shape_.kv_heads),
        memory_(blocks * block_rows * shape_.row_bytes()) {
    for (std::size_t i = 0; i < blocks; ++i) {
      table_.push_back(memory_.data() + i * block_rows * shape_.row_bytes());
    }
  }

  [[nodiscard]] CachedRows cached() {
    return {.numbers = numbers_.data(), .blocks = table_.data(), .block_rows = block_rows};
  }

  [[nodiscard]] CacheRows change_request(const std::vector<CachedRowChange>& changes) {
    changes_ = changes;
    return {.shape = shape_,
            .changes = changes_.data(),
            .count = changes_.size(),
            .source = host_.table(),
            .staging = staging_.data(),
            .target = cached()};
  }
  std::size_t change(const std::vector<CachedRowChange>& changes) {
    return run(change_request(changes));
  }

  [[nodiscard]] std::byte* place(std::uint32_t number) {
    return kernels::cached_row(shape_, cached(), number);
  }

  std::vector<std::uint32_t> numbers_;
  Guarded<std::byte> memory_;
  std::vector<std::byte*> table_;
  std::vector<CachedRowChange> changes_;
};

/// Every third row of both heads, at numbers that jump about.
inline std::vector<CachedRowChange> some_rows() {
  std::vector<CachedRowChange> changes;
  for (std::uint32_t position = 0; position < ResolveScenario::positions; position += 3) {
    for (std::uint32_t head = 0; head < 2; ++head) {
      const std::uint32_t order = position / 3 * 2 + head;
      changes.push_back({.position = position, .head = head, .number = 1 + order * 7 % 401});
    }
  }
  return changes;
}

}  // namespace terrace::testing
