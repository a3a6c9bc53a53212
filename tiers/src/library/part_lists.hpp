// The lists of parts that chunks have. Chunks of one model have the same list, so that a number in
// place of a list is enough for each chunk.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "terrace/tiers/manifest.hpp"

namespace terrace::tiers {

inline std::vector<PartName> names_of(const Manifest& manifest) {
  std::vector<PartName> names;
  for (const Part& part : manifest.parts()) names.push_back(part.name);
  return names;
}

/// Threads  one at a time
class PartLists {
 public:
  /// Returns the number of a list, which stays the same.
  std::uint64_t number_of(const std::vector<PartName>& parts) {
    const auto [list, is_new] = numbers_.try_emplace(parts, lists_.size());
    if (is_new) lists_.push_back(&list->first);
    return list->second;
  }

  [[nodiscard]] std::span<const PartName> list(std::uint64_t number) const {
    return *lists_[number];
  }

 private:
  std::map<std::vector<PartName>, std::uint64_t> numbers_;
  std::vector<const std::vector<PartName>*> lists_;
};

}  // namespace terrace::tiers
