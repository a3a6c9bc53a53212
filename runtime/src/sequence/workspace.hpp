// Device memory that the layers of a step use in turn, in the compute queue's order.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "rows/host_rows.hpp"
#include "services/sequence_services.hpp"
#include "terrace/core/backend.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace {

class Layer;

class Workspace {
 public:
  explicit Workspace(const SequenceServices& services) noexcept
      : plan_(services.plan), progress_(services.progress), work_(services.work) {}

  /// Makes room for the step of a sequence of `length` tokens, its own included; layers get memory
  /// for their selections, too. Errors: out_of_memory, not_ready, those of queues.
  Status reserve(std::size_t length, std::span<const std::unique_ptr<Layer>> layers);
  void reset() noexcept;
  /// Entries that a token of a sequence of `length` attends to at most, sinks and window included,
  /// with retention.
  [[nodiscard]] std::size_t retained_entries(std::size_t length) const noexcept;

  /// Where a policy writes what it selects of a layer.
  [[nodiscard]] Selection selection(const Layer& layer) const noexcept;
  [[nodiscard]] ResolveRows resolve(const Layer& layer) const noexcept;
  [[nodiscard]] FetchRows fetch(const Layer& layer, const HostRows& rows) const noexcept;
  [[nodiscard]] PseudoEntries pseudo(const Layer& layer) const noexcept;
  [[nodiscard]] std::byte* const* rows() const noexcept { return rows_.as<std::byte*>(); }
  [[nodiscard]] const float* logit_bias() const noexcept { return logit_bias_.as<float>(); }
  /// Memory for entries that are made of rows: [lists, entries] rows.
  [[nodiscard]] std::byte* means() const noexcept { return means_.data(); }
  [[nodiscard]] float* select_scratch() const noexcept { return select_scratch_.as<float>(); }
  [[nodiscard]] float* attention_scratch() const noexcept { return attention_scratch_.as<float>(); }

 private:
  Status reserve_attention(std::size_t length);
  Status reserve_lists(std::span<const std::unique_ptr<Layer>> layers);
  Status reserve_seen(std::size_t length);
  Status reserve_pseudo_entries(std::size_t length);
  Status reserve_candidates(std::size_t length);

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  Buffer staging_;     ///< [lists * selected] rows; unless a layer's cache has its own
  Buffer rows_;        ///< [lists, selected] row pointers
  Buffer missed_;      ///< [lists * selected] MissedRow
  Buffer logit_bias_;  ///< [lists, selected], of policies that give one
  Buffer select_scratch_;
  Buffer attention_scratch_;
  Buffer seen_;  ///< of lists per query head only
  Buffer seen_epoch_;
  Buffer pseudo_rows_;  ///< [lists, pseudo_entries_]: where entries lie
  Buffer pseudo_bias_;
  Buffer means_;  ///< [lists, pseudo_entries_] rows, of policies that estimate the rest
  std::size_t candidates_ = 0;  ///< that select_scratch_ has room for
  std::size_t entries_ = 0;     ///< that attention_scratch_ has room for
  std::size_t positions_ = 0;   ///< that seen_ has room for
  std::size_t pseudo_entries_ = 0;
};

}  // namespace terrace
