// The checks of lists, gauges and counters.
#include <algorithm>
#include <numeric>
#include <vector>

#include "directory_block.hpp"

namespace terrace::tiers {
namespace {

/// Calls `visit` for each copy of a list, from the oldest; returns false where the list is not one,
/// or `visit` returns false.
template <typename Visit>
bool walks(const CopyTable& copies, const ListEnds& list, Visit visit) {
  RecordNumber last = no_record;
  std::uint32_t seen = 0;
  for (RecordNumber number = list.oldest; number != no_record; number = copies[number].newer) {
    if (number >= copies.pool().state().fresh || ++seen > list.count) return false;
    if (copies[number].older != last || !visit(number)) return false;
    last = number;
  }
  return last == list.newest && seen == list.count;
}

void add(TierGauges& gauges, const CopyRecord& copy) {
  if (static_cast<CopyState>(copy.state) != CopyState::resident) {
    gauges.in_flight += copy.bytes;
    return;
  }
  gauges.resident += copy.bytes;
  ++gauges.copies;
  if (copy.pins > 0) gauges.pinned += copy.bytes;
}

}  // namespace

bool Directory::Block::has_right_lists() const {
  std::uint64_t listed = 0;
  for (const TenantRecord& tenant : tenants) {
    for (std::size_t tier = 0; tier < stored_tier_count; ++tier) {
      const bool is_right = walks(copies, tenant.lists[tier], [&](RecordNumber number) {
        const CopyRecord& copy = copies[number];
        return copies.has_state(number, CopyState::resident) && copy.pins == 0 &&
               copy.tier == tier && &copies.tenant_of(copy) == &tenant;
      });
      if (!is_right) return false;
      listed += tenant.lists[tier].count;
    }
  }
  const bool leave = walks(copies, header.leaving, [&](RecordNumber number) {
    return copies.has_state(number, CopyState::leaving);
  });
  if (!leave) return false;
  listed += header.leaving.count;
  std::uint64_t to_list = 0;
  for (RecordNumber number = 1; number < header.copies.fresh; ++number) {
    const bool is_evictable =
        copies.has_state(number, CopyState::resident) && copies[number].pins == 0;
    if (is_evictable || copies.has_state(number, CopyState::leaving)) ++to_list;
  }
  return listed == to_list;
}

bool Directory::Block::has_right_counts() const {
  using OfTiers = std::array<TierGauges, stored_tier_count>;
  std::vector<OfTiers> of_tenants(tenants.size());
  OfTiers of_all{};
  for (RecordNumber number = 1; number < header.copies.fresh; ++number) {
    if (copies.has_state(number, CopyState::free)) continue;
    const CopyRecord& copy = copies[number];
    add(of_all[copy.tier], copy);
    add(of_tenants[chunks[copy.chunk].tenant][copy.tier], copy);
  }
  if (of_all != header.gauges) return false;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    const LookUpCounters& counters = tenants[i].counters;
    const auto& ended = counters.ended;
    if (of_tenants[i] != tenants[i].gauges) return false;
    if (std::accumulate(ended.begin(), ended.end(), std::uint64_t{0}) != counters.look_ups) {
      return false;
    }
  }
  return true;
}

}  // namespace terrace::tiers
