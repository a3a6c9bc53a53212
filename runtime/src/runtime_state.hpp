// The state that the sequences of a runtime share.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "prefix/prefix_library.hpp"
#include "reclaimer.hpp"
#include "step/step_memory.hpp"
#include "terrace/core/backend.hpp"
#include "terrace/core/retention.hpp"
#include "terrace/core/retrieval.hpp"
#include "terrace/offload/host_pages.hpp"
#include "terrace/offload/page_mover.hpp"
#include "terrace/offload/slot_pool.hpp"
#include "terrace/policies/iteration_planner.hpp"
#include "terrace/policies/resident_cache.hpp"
#include "terrace/runtime/options.hpp"

namespace terrace {

class SequenceState;

class RuntimeState {
 public:
  static Result<std::unique_ptr<RuntimeState>> create(RuntimeOptions options,
                                                      std::unique_ptr<Backend> backend);

  const RuntimeOptions options;
  const std::unique_ptr<Backend> backend;
  const std::shared_ptr<const RetrievalPolicy> policy;
  const std::shared_ptr<const RetentionPolicy> retention;  ///< null = every token stays
  const IndexLayout index_layout;
  Reclaimer reclaimer{*this};

  [[nodiscard]] const KvShape& shape() const noexcept { return options.shape; }

  /// How the budget of a sequence of so many tokens is dealt out.
  [[nodiscard]] policies::BudgetTerms budget_terms(std::size_t tokens) const noexcept {
    policies::BudgetTerms terms = options.budget_terms(tokens);
    if (policy->traits().keeps_everything) terms.budget_tokens = tokens;
    return terms;
  }

  /// Whether a sequence's budget grows with its length. Entries that retention keeps have memory
  /// for one budget.
  [[nodiscard]] bool budget_grows() const noexcept {
    return options.budget.kind == TokenBudget::Kind::share && retention == nullptr &&
           !policy->traits().keeps_everything;
  }
  /// Returns how the budget of the token at `position` is dealt out, where budgets grow.
  [[nodiscard]] policies::BudgetSplit grown_split(std::size_t position) const noexcept {
    return policies::split_budget(budget_terms(position + 1), policy->traits());
  }
  /// Returns how many there is room for where `tokens` are attended to: lists that grow with the
  /// budget grow by an eighth at once.
  [[nodiscard]] std::size_t room_for(std::size_t tokens) const noexcept {
    return budget_grows() ? tokens + tokens / 8 + 16 : tokens;
  }

  /// Whether tokens that retention does not keep are gone.
  [[nodiscard]] bool drops() const noexcept {
    return retention != nullptr && options.dropped == DroppedTokens::release;
  }
  /// Whether they stay, so that entries are held beside what is selected.
  [[nodiscard]] bool holds() const noexcept { return retention != nullptr && !drops(); }

  /// Entries that retention keeps of the KV head that may keep most, of `mean` over all.
  [[nodiscard]] std::size_t most_kept(std::size_t mean) const noexcept;
  /// Entries that retention may keep of each KV head of a layer, in a sequence whose budget was set
  /// for `tokens` tokens and is dealt out as `split`.
  [[nodiscard]] std::vector<std::size_t> entry_rooms(LayerId layer,
                                                     const policies::BudgetSplit& split,
                                                     std::size_t tokens) const;

  [[nodiscard]] std::size_t block_bytes() const noexcept {
    return options.block_tokens * options.shape.token_bytes();
  }

  /// Returns a device block, taking one from a sequence that can spare it where memory has run out.
  /// Errors: out_of_memory naming the limit and what to do.
  Result<std::byte*> take_block(SequenceState& requester);
  /// Returns a device block as take_block(), but takes none from a sequence.
  Result<std::byte*> take_spare_block();
  void give_block(std::byte* block);
  /// Blocks of cached clusters have a pool of their own: given up, they leave none of it behind.
  Result<std::byte*> take_cluster_block();
  void give_cluster_block(std::byte* block);
  /// Has memory for so many of them ready, as far as there is any: mapping it takes longer than a
  /// step.
  void reserve_cluster_blocks(std::size_t count);
  /// Device memory that is held for blocks, in use or not.
  std::size_t block_pool_bytes();

  /// Lends memory for a step, with the buffers that an earlier step has allocated.
  std::unique_ptr<StepMemory> lend_step_memory();
  /// No work uses it any more.
  void take_back(std::unique_ptr<StepMemory> memory) noexcept;

  void set_limit(Tier tier, std::size_t bytes) noexcept;

  /// Returns empty slabs, and memory that no step uses, to the backend; returns whether there was
  /// any.
  bool trim_pools();
  /// Gives up memory of steps that is not lent. Returns whether there was any.
  bool release_step_memory();

  offload::HostPagePool& pages() noexcept { return *pages_; }
  /// Moves pages to the store below the host and back; null = no store.
  offload::PageMover* mover() noexcept { return mover_.get(); }
  /// Prefixes that sequences may begin with; null = none are kept.
  PrefixLibrary* prefixes() noexcept { return prefixes_.get(); }
  /// Pages that may be on the host before the oldest leave it.
  [[nodiscard]] std::size_t host_pages_limit() const noexcept {
    return options.below_host.host_bytes / block_bytes();
  }
  /// Counts up: pages that are wanted later have greater numbers.
  std::uint64_t count_wanted() noexcept { return wanted_.fetch_add(1, std::memory_order_relaxed); }

  /// Clusters with the shared threads; one caller at a time, other callers wait their turn.
  Result<BuildReport> build(const BuildRequest& request);

  /// Rates tokens for retention with the shared threads; one caller at a time.
  Status rate(const RateRequest& request);

  /// Returns the iterations that a layer's clustering may take that begins `late` after its rows
  /// reached the host.
  std::size_t planned_iterations(std::size_t layer, const policies::HiddenClustering& clustering,
                                 Duration late);
  void observe_clustering(std::size_t rows, double iterations, Duration time);
  void observe_compute(const policies::HiddenClustering& clustering, Duration time);
  [[nodiscard]] bool plans_iterations() const noexcept {
    return options.planning.iterations.empty();
  }

  /// Counts the sequences that share the cache.
  void enter_cache() noexcept { cache_sharers_.fetch_add(1, std::memory_order_relaxed); }
  void leave_cache() noexcept { cache_sharers_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] std::size_t cache_sharers() const noexcept {
    return cache_sharers_.load(std::memory_order_relaxed);
  }

  /// Nothing begins any more. Sequences keep the state until they are closed, too.
  void close() noexcept { closed_.store(true, std::memory_order_relaxed); }
  /// Errors: invalid_argument: closed before `who`.
  [[nodiscard]] Status check_open(std::string_view who) const noexcept {
    if (!closed_.load(std::memory_order_relaxed)) return {};
    return fail(Errc::invalid_argument, "the runtime was closed before {}", who);
  }

  /// Errors: invalid_argument: no queue of the backend's device. The backend does not know tickets
  /// or memory of other devices.
  [[nodiscard]] Status check_compute(Queue& queue) const;

  /// Errors: invalid_argument: no sequence has so many tokens, or sizes of them would wrap.
  [[nodiscard]] Status check_countable(std::size_t tokens) const;

  [[nodiscard]] SequenceId next_sequence() noexcept {
    return SequenceId{opened_.fetch_add(1, std::memory_order_relaxed)};
  }

 private:
  struct Policies {
    std::shared_ptr<const RetrievalPolicy> retrieval;
    std::shared_ptr<const RetentionPolicy> retention;
  };
  /// The policies that the options name, or bring. Errors: invalid_argument; unsupported where they
  /// do not go together.
  static Result<Policies> make_policies(const RuntimeOptions& options);
  /// Opens the store that a file is named for, and its library. Returns the library of the store:
  /// null where there is no store, or where chunks of a caller's store are not asked for.
  static Result<std::shared_ptr<tiers::ChunkLibrary>> open_store(RuntimeOptions& options);
  /// Has rows make room for themselves among the chunks that the store keeps.
  static std::function<bool(std::uint64_t bytes)> room_maker(
      const RowsBelowHost& below, const std::shared_ptr<tiers::ChunkLibrary>& chunks);
  RuntimeState(RuntimeOptions options, std::unique_ptr<Backend> backend, Policies policies,
               IndexLayout layout);

  /// Makes what moves rows below the host, and what finds prefixes there.
  Status open_tiers(std::shared_ptr<tiers::ChunkLibrary> chunks);

  /// With a store below the host, pages leave a part of the host's memory to other data.
  void limit_pages() noexcept;

  std::unique_ptr<Parallel> cluster_threads_;
  std::mutex cluster_mutex_;

  std::mutex pool_mutex_;
  std::unique_ptr<offload::SlotPool> blocks_;
  std::unique_ptr<offload::SlotPool> cluster_blocks_;
  std::vector<std::unique_ptr<StepMemory>> step_memory_;  ///< that is not lent
  std::unique_ptr<offload::HostPagePool> pages_;
  std::shared_ptr<tiers::ChunkLibrary> chunks_;  ///< that the store below the host keeps
  std::unique_ptr<offload::PageMover> mover_;
  std::unique_ptr<PrefixLibrary> prefixes_;
  std::atomic<std::uint64_t> wanted_{0};

  std::mutex planner_mutex_;
  policies::IterationPlanner planner_;

  std::atomic<std::size_t> cache_sharers_{0};
  std::atomic<std::uint64_t> opened_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace terrace
