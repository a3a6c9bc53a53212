// Memory that caches of a sequence's layers use in turn, kept so that a step allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "layer/cluster_units.hpp"
#include "selection_count.hpp"
#include "terrace/core/queue.hpp"
#include "terrace/policies/resident_cache.hpp"

namespace terrace {

struct CacheScratch {
  explicit CacheScratch(SelectionCount counting) noexcept : selection(std::move(counting)) {}

  SelectionCount selection;
  std::vector<policies::WantedUnit> wanted;
  policies::CachePlan plan;
  std::vector<UnitKey> evicted;
  std::vector<UnitRow> rows;
  std::vector<std::uint32_t> blocks;
  std::vector<CopyExtent> extents;
};

}  // namespace terrace
