#include "selection_report.hpp"

#include <algorithm>
#include <utility>

#include "layer/layer.hpp"

namespace terrace {

SelectionReport::SelectionReport(const SequenceServices& services) noexcept
    : plan_(services.plan), progress_(services.progress), journal_(services.work.journal) {}

void SelectionReport::report(Layer& layer, std::size_t position) {
  sort_positions(layer);
  count_clusters(layer);
  epochs_.resize(plan_.shape().layers);
  const bool renamed = std::exchange(epochs_[layer.number], layer.index.clusters.epoch()) !=
                       layer.index.clusters.epoch();
  const TokenRange cacheable = layer.rows.cacheable_positions();
  journal_.note_selection({.layer = layer.id(),
                           .position = position,
                           .sinks = layer.token().sinks,
                           .window = layer.token().window,
                           .resident_head = cacheable.begin / plan_.block_tokens(),
                           .resident_tail = cacheable.end / plan_.block_tokens(),
                           .positions = positions_,
                           .head_counts = head_counts_,
                           .clusters = clusters_,
                           .clusters_renamed = renamed});
}

void SelectionReport::sort_positions(const Layer& layer) {
  const SelectionBuffers lists = layer.token().selection.on_host();
  const std::size_t heads = plan_.shape().kv_heads;
  const std::size_t group = plan_.group();
  positions_.clear();
  head_counts_.assign(heads, 0);
  for (std::size_t head = 0; head < heads; ++head) {
    const auto begin = static_cast<std::ptrdiff_t>(positions_.size());
    for (std::size_t list = head * group; list < (head + 1) * group; ++list) {
      const std::uint32_t* const ids = lists.ids + list * progress_.list_rows();
      positions_.insert(positions_.end(), ids, ids + lists.counts[list]);
    }
    std::sort(positions_.begin() + begin, positions_.end());
    positions_.erase(std::unique(positions_.begin() + begin, positions_.end()), positions_.end());
    head_counts_[head] = static_cast<std::uint32_t>(positions_.end() - positions_.begin() - begin);
  }
}

void SelectionReport::count_clusters(Layer& layer) {
  clusters_.clear();
  if (plan_.layout.chunk_clusters == 0) return;
  layer.index.clusters.read_members(plan_, layer.index.image);
  const ClusterMembers& members = layer.index.clusters.members();
  rows_.begin(members.units(), positions_.size());
  const TokenRange cacheable = layer.rows.cacheable_positions();
  std::size_t end = 0;
  for (std::size_t head = 0; head < head_counts_.size(); ++head) {
    const std::span<const UnitKey> units = members.units_of(head);
    std::size_t i = end;
    for (end += head_counts_[head]; i < end; ++i) {
      if (!cacheable.contains(positions_[i])) continue;
      rows_.add(units[positions_[i] - members.first_position()], static_cast<std::uint32_t>(i));
    }
  }
  for (const UnitKey unit : rows_.units()) {
    clusters_.push_back({.unit = unit,
                         .rows_wanted = rows_.count(unit),
                         .size_rows = static_cast<std::uint32_t>(members.of(unit).size())});
  }
}

}  // namespace terrace
