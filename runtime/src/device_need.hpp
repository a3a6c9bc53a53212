// How much device memory a sequence needs, told before there is one.
#pragma once

#include <cstddef>

#include "terrace/policies/budget.hpp"

namespace terrace {

class RuntimeState;

/// The device memory that one sequence of at most `tokens` tokens, with no cache of its own, takes
/// while it decodes. Sizes follow those that SequenceRows, Workspace and DeviceIndexes reserve.
class DeviceNeed {
 public:
  DeviceNeed(const RuntimeState& runtime, std::size_t tokens) noexcept;

  [[nodiscard]] std::size_t bytes() const noexcept {
    return rows() + workspace() + selections() + indexes() + kept_entries();
  }

 private:
  /// Blocks of rows, and the tables that name them.
  [[nodiscard]] std::size_t rows() const noexcept;
  /// Blocks of a layer that selects.
  [[nodiscard]] std::size_t window_blocks() const noexcept;
  [[nodiscard]] std::size_t workspace() const noexcept;
  [[nodiscard]] std::size_t attention_entries() const noexcept;
  [[nodiscard]] std::size_t pseudo_entries() const noexcept;
  [[nodiscard]] std::size_t selections() const noexcept;
  [[nodiscard]] std::size_t indexes() const noexcept;
  /// Entries of retention.
  [[nodiscard]] std::size_t kept_entries() const noexcept;
  /// Rows of all lists together.
  [[nodiscard]] std::size_t listed_rows() const noexcept;
  [[nodiscard]] bool may_select() const noexcept;

  const RuntimeState& runtime_;
  std::size_t tokens_;
  policies::BudgetSplit split_;
};

}  // namespace terrace
