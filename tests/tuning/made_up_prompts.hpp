// Prompts that share prefixes, made to order.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "terrace/core/rng.hpp"

namespace terrace::tuning {

using Chunks = std::vector<std::uint32_t>;

/// Prompts as paths in a tree whose first branches are taken most often: a chunk has a parent.
class Prompts {
 public:
  explicit Prompts(std::uint64_t seed) : rng_(seed) {}

  Chunks next() {
    Chunks chunks;
    std::uint32_t parent = 0;
    for (std::uint64_t i = 1 + rng_.below(12); i > 0; --i) {
      const std::uint64_t branch = rng_.below(1 + rng_.below(4));
      const auto fresh = static_cast<std::uint32_t>(1 + numbers_.size());
      parent = numbers_.try_emplace({parent, branch}, fresh).first->second;
      chunks.push_back(parent);
    }
    return chunks;
  }

 private:
  Rng rng_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> numbers_;
};

}  // namespace terrace::tuning
