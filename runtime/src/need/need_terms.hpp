// The counts that determine the memory of a sequence: tokens, entries, lists and chunks.
#pragma once

#include <cstddef>

#include "plan/runtime_plan.hpp"
#include "terrace/policies/budget.hpp"
#include "terrace/runtime/memory_need.hpp"

namespace terrace {

class NeedTerms {
 public:
  /// `query` is one that check_need() has passed. The plan must outlive the terms. Sharers of the
  /// cache are counted in it.
  /// `device_limit`: bytes that there may be on the device.
  NeedTerms(const RuntimePlan& of, const NeedQuery& query, std::size_t device_limit) noexcept;

  const RuntimePlan& plan;
  const NeedQuery asked;  ///< with counts of a step's tokens in their range
  const policies::BudgetSplit split;
  const std::size_t device_memory;  ///< bytes that there may be

  [[nodiscard]] const KvShape& shape() const noexcept { return plan.shape(); }
  [[nodiscard]] const RuntimeOptions& options() const noexcept { return plan.options; }
  [[nodiscard]] const RetrievalTraits& traits() const noexcept { return plan.traits(); }
  [[nodiscard]] const IndexLayout& layout() const noexcept { return plan.layout; }

  /// Layers that select, or that retention is for: all but the dense ones.
  [[nodiscard]] std::size_t sparse_layers() const noexcept {
    return shape().layers - options().dense_layers;
  }
  [[nodiscard]] bool may_select() const noexcept { return traits().selects && split.selected > 0; }
  /// Lists of a selection.
  [[nodiscard]] std::size_t lists() const noexcept { return plan.lists(); }
  /// Rows that a list has room for.
  [[nodiscard]] std::size_t list_rows() const noexcept { return plan.room_for(split.selected); }
  [[nodiscard]] std::size_t pseudo_entries() const noexcept;
  /// Entries of a KV head that one token attends to.
  [[nodiscard]] std::size_t attention_entries() const noexcept;
  /// Tokens of a step that select one by one.
  [[nodiscard]] std::size_t single_tokens() const noexcept;

  /// Chunks of a layer's index; 0 where nothing is indexed.
  [[nodiscard]] std::size_t chunks() const noexcept;
  /// Bytes of an index of so many chunks, the fixed part included.
  [[nodiscard]] std::size_t index_bytes(std::size_t chunks) const noexcept;

  /// Whether attention gives weights that retention goes by.
  [[nodiscard]] bool wants_weights() const noexcept;
  /// Numbers of a list of such weights that there is room for.
  [[nodiscard]] std::size_t weight_columns() const noexcept;
  /// Bytes of the entries that retention keeps, all layers, in one tier.
  [[nodiscard]] std::size_t entry_bytes() const noexcept;

  /// Whether there are prompts whose rows stay in the window until they have ended.
  [[nodiscard]] bool keeps_later_prompts() const noexcept;
};

/// Errors: invalid_argument: no sequence gets that long, or 64 bits do not count its bytes.
[[nodiscard]] Status check_need(const RuntimePlan& plan, const NeedQuery& query);

}  // namespace terrace
