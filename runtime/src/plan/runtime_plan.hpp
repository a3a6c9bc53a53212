// The plan of a runtime: its options, its policies, and what follows from them. Nothing changes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "terrace/core/retention.hpp"
#include "terrace/core/retrieval.hpp"
#include "terrace/policies/budget.hpp"
#include "terrace/runtime/options.hpp"

namespace terrace {

/// Positions are 32-bit in selections.
inline constexpr std::size_t max_positions = std::size_t{1} << 31;

/// Threads  any
class RuntimePlan {
 public:
  /// Errors   invalid_argument: options that are not valid, names that nobody has; unsupported:
  ///          policies that do not go together, or cannot do what the options ask of them
  static Result<RuntimePlan> make(RuntimeOptions options);

  const RuntimeOptions options;
  const std::shared_ptr<const RetrievalPolicy> policy;
  const std::shared_ptr<const RetentionPolicy> retention;  ///< null = every token stays
  const IndexLayout layout;                                ///< of the policy's indexes

  [[nodiscard]] const KvShape& shape() const noexcept { return options.shape; }
  [[nodiscard]] const RetrievalTraits& traits() const noexcept { return policy->traits(); }
  [[nodiscard]] Duration deadline() const noexcept { return options.deadline; }
  [[nodiscard]] std::size_t block_tokens() const noexcept { return options.block_tokens; }
  [[nodiscard]] std::size_t block_bytes() const noexcept {
    return options.block_tokens * options.shape.token_bytes();
  }

  // How tokens are kept and attended to.

  /// Whether all rows are on the device, and nothing is on the host.
  [[nodiscard]] bool keeps_everything() const noexcept { return traits().keeps_everything; }
  [[nodiscard]] bool selects() const noexcept { return traits().selects; }
  /// Whether entries are made of tokens that leave the window.
  [[nodiscard]] bool retains() const noexcept { return retention != nullptr; }
  /// Whether tokens that leave the window without an entry are gone.
  [[nodiscard]] bool drops() const noexcept {
    return retains() && options.dropped == DroppedTokens::release;
  }
  /// Whether these tokens stay, to be selected beside the entries.
  [[nodiscard]] bool holds() const noexcept { return retains() && !drops(); }
  /// Whether a layer attends to all rows.
  [[nodiscard]] bool is_dense(std::size_t layer) const noexcept {
    return layer < options.dense_layers;
  }

  /// Lists of a selection, and those of one KV head.
  [[nodiscard]] std::size_t lists() const noexcept { return list_count(shape(), traits().lists); }
  [[nodiscard]] std::size_t group() const noexcept { return lists() / shape().kv_heads; }
  /// Whether there is a cache of such units.
  [[nodiscard]] bool caches(CacheGranularity unit) const noexcept {
    return selects() && !options.cache.none() && options.cache.granularity == unit;
  }

  // Budgets.

  /// How the budget of a sequence of so many tokens is dealt out.
  [[nodiscard]] policies::BudgetTerms budget_terms(std::size_t tokens) const noexcept;
  /// Whether a sequence's budget grows with its length. Entries that retention keeps have memory
  /// for one budget.
  [[nodiscard]] bool budget_grows() const noexcept;
  /// Returns how the budget of the token at `position` is dealt out, where budgets grow.
  [[nodiscard]] policies::BudgetSplit grown_split(std::size_t position) const noexcept {
    return policies::split_budget(budget_terms(position + 1), traits());
  }
  /// Returns how many there is room for where `tokens` are attended to: lists that grow with the
  /// budget grow by an eighth at once.
  [[nodiscard]] std::size_t room_for(std::size_t tokens) const noexcept {
    return budget_grows() ? tokens + tokens / 8 + 16 : tokens;
  }

  /// Entries that retention keeps of the KV head that may keep most, of `mean` over all.
  [[nodiscard]] std::size_t most_kept(std::size_t mean) const noexcept;
  /// Entries that retention may keep of each KV head of a layer, in a sequence whose budget was set
  /// for `tokens` tokens and is dealt out as `split`.
  [[nodiscard]] std::vector<std::size_t> entry_rooms(LayerId layer,
                                                     const policies::BudgetSplit& split,
                                                     std::size_t tokens) const;

  /// Errors: invalid_argument: no sequence has so many tokens, or sizes of them would wrap.
  [[nodiscard]] Status check_countable(std::size_t tokens) const;

 private:
  struct Policies {
    std::shared_ptr<const RetrievalPolicy> retrieval;
    std::shared_ptr<const RetentionPolicy> retention;
  };
  /// The policies that the options name, or bring.
  static Result<Policies> make_policies(const RuntimeOptions& options);
  RuntimePlan(RuntimeOptions chosen, Policies policies, IndexLayout indexes);
};

}  // namespace terrace
