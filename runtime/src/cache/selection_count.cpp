#include "selection_count.hpp"

#include <span>
#include <utility>

#include "layer/cluster_units.hpp"
#include "layer/layer.hpp"

namespace terrace {
namespace {

/// A list of a selection, and the place of its first row among all lists'.
struct RowList {
  std::span<const std::uint32_t> positions;
  std::size_t first = 0;
};

/// Notes the rows of a list that lie in `cacheable`; returns how many do not. Rows that were in a
/// list before are neither.
template <typename IsNew, typename UnitOf>
std::size_t note_rows(const RowList& list, TokenRange cacheable, WantedRows& wanted, IsNew is_new,
                      UnitOf unit_of) {
  std::size_t others = 0;
  for (std::size_t i = 0; i < list.positions.size(); ++i) {
    const std::uint32_t position = list.positions[i];
    if (!is_new(position)) continue;
    if (cacheable.contains(position)) {
      wanted.add(unit_of(position), static_cast<std::uint32_t>(list.first + i));
    } else {
      ++others;
    }
  }
  return others;
}

}  // namespace

std::uint64_t SelectionCount::count_entries(const SelectionBuffers& lists,
                                            SequenceCounters& counters) const {
  // Rests are counted once attention has found them (Participant::conclude).
  const RetrievalTraits& traits = plan_.traits();
  const bool counts_pseudo = traits.gives_pseudo_entries && !traits.estimates_rest;
  std::uint64_t entries = 0;
  for (std::size_t list = 0; list < plan_.lists(); ++list) {
    entries += lists.counts[list];
    if (counts_pseudo) counters.pseudo_entries += lists.pseudo_counts[list];
  }
  counters.attended += entries;
  counters.bytes.demand += *lists.missed_count * plan_.shape().row_bytes();
  counters.cache.rows_missed += *lists.missed_count;
  return entries;
}

void SelectionCount::count(const Layer& layer, const RowUnits& units, SequenceCounters& counters) {
  count_entries(layer.token().selection.on_host(), counters);
  rows_.begin(units.count, plan_.lists() * progress_.list_rows());
  if (plan_.group() > 1) {
    const std::size_t positions = layer.rows.blocks() * plan_.block_tokens();
    const std::size_t rows = plan_.shape().kv_heads * positions;
    if (seen_.size() < rows) seen_.assign(rows, 0);
    ++epoch_;
  }
  for (std::size_t list = 0; list < plan_.lists(); ++list) {
    counters.cache.rows_resident += count_list(layer, list, units);
  }
}

void SelectionCount::count_slots(const Layer& layer, bool keeps, SequenceCounters& counters) {
  const SelectionBuffers lists = layer.token().selection.on_host();
  const std::uint32_t missed = *lists.missed_count;
  RowSlotCounts sum;
  for (std::size_t head = 0; keeps && head < plan_.shape().kv_heads; ++head) {
    sum.found += lists.slots[head].found;
    sum.admitted += lists.slots[head].admitted;
    sum.evicted += lists.slots[head].evicted;
  }
  if (plan_.group() == 1) {
    const std::uint64_t entries = count_entries(lists, counters);
    counters.cache.rows_resident += entries - sum.found - missed;
  } else {
    count(layer, {.count = layer.rows.blocks(), .block_tokens = plan_.block_tokens()}, counters);
  }
  CacheCounters& cache = counters.cache;
  cache.rows_hit += sum.found;
  cache.blocks_hit += sum.found;
  cache.blocks_missed += missed;
  cache.admitted += sum.admitted;
  cache.evicted += sum.evicted;
  if (!plan_.options.cache.none()) cache.refused += missed - sum.admitted;
}

std::size_t SelectionCount::count_list(const Layer& layer, std::size_t list,
                                       const RowUnits& units) {
  const SelectionBuffers lists = layer.token().selection.on_host();
  const TokenRange cacheable = layer.rows.cacheable_positions();
  const std::size_t first = list * progress_.list_rows();
  const RowList rows{.positions = {lists.ids + first, lists.counts[list]}, .first = first};
  const std::size_t head = list / plan_.group();
  const auto count = [&](auto unit_of) {
    if (plan_.group() == 1) {
      return note_rows(rows, cacheable, rows_, [](std::uint32_t) { return true; }, unit_of);
    }
    // Another query head of the KV head may want the row too.
    std::uint64_t* const seen = seen_.data() + head * layer.rows.blocks() * plan_.block_tokens();
    const auto is_new = [&](std::uint32_t position) {
      return std::exchange(seen[position], epoch_) != epoch_;
    };
    return note_rows(rows, cacheable, rows_, is_new, unit_of);
  };
  if (units.clusters == nullptr) {
    return count([tokens = static_cast<std::uint32_t>(units.block_tokens)](std::uint32_t position) {
      return UnitKey{position / tokens};
    });
  }
  return count([of_row = units.clusters->units_of(head).data(),
                begin = units.clusters->first_position()](std::uint32_t position) {
    return of_row[position - begin];
  });
}

}  // namespace terrace
