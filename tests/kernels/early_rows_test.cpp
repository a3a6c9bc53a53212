// Rows that were fetched before their step: found, counted, and never wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "kernels/dealt_shares.hpp"
#include "kernels/resolve_scenario.hpp"

namespace terrace {
namespace {

using testing::ResolveScenario;
using testing::run;

/// A scenario whose rows of the step before were fetched early.
struct EarlyScenario : ResolveScenario {
  EarlyScenario(ListScope scope, std::size_t group, std::size_t list_size)
      : ResolveScenario(scope, group, list_size),
        early_staging(staging_.size()),
        used(rows_.size()),
        attended(ids_.size()),
        attended_counts(lists_),
        query(shape_.query_heads * shape_.head_dim, 1.0F),
        last_query(query) {}

  void fetch_early(std::uint64_t stream) {
    select(stream);
    resolve();
    fetch();
    std::copy_n(staging_.data(), staging_.size(), early_staging.data());
    early_ids = ids_;
    early_rows = rows_;
    for (std::byte*& row : early_rows) {
      const bool staged = row >= staging_.data() && row < staging_.data() + staging_.size();
      if (staged) row = early_staging.data() + (row - staging_.data());
    }
    early_missed[0] = misses();
    fetched = true;
  }

  void step(std::uint64_t stream, float likeness_min) {
    select(stream);
    run(ResolveEarlyRows{.resolve = request(),
                         .ids = attended.data(),
                         .id_count = attended_counts.data(),
                         .count = {.mean = count, .shares = shares},
                         .early_ids = fetched ? early_ids.data() : nullptr,
                         .early_count = counts_.data(),
                         .early_rows = early_rows.data(),
                         .early_staging = early_staging.data(),
                         .early_missed = early_missed.data(),
                         .early_used = used.data(),
                         .query = query.data(),
                         .last_query = last_query.data(),
                         .likeness_min = likeness_min,
                         .outcome = outcomes.data()});
    fetch();
  }

  [[nodiscard]] std::vector<std::uint32_t> list(const std::vector<std::uint32_t>& ids,
                                                std::size_t number) const {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(number * stride_);
    return {begin, begin + static_cast<std::ptrdiff_t>(attended_counts[number])};
  }

  /// Checks each attended row, and the outcome against a count of its own.
  void expect_right() {
    std::uint32_t useful = 0;
    std::set<std::byte*> distinct;
    for (std::size_t number = 0; number < lists_; ++number) {
      const std::size_t head = number * 2 / lists_;
      for (std::size_t i = 0; i < attended_counts[number]; ++i) {
        std::byte* const row = rows_[number * stride_ + i];
        const std::uint32_t position = attended[number * stride_ + i];
        EXPECT_EQ(std::memcmp(row, host_.row(head, position), shape_.row_bytes()), 0);
        if (row < early_staging.data() || row >= early_staging.data() + early_staging.size()) {
          continue;
        }
        ++useful;
        distinct.insert(row);
      }
    }
    EXPECT_EQ(outcome.useful, useful);
    EXPECT_EQ(outcome.fetched, fetched ? early_missed[0] : 0);
    EXPECT_EQ(outcome.wasted, outcome.fetched - distinct.size());
    EXPECT_EQ(outcome.late, misses());
    EXPECT_EQ(last_query, query);
  }

  std::vector<std::byte> early_staging;
  std::vector<std::uint32_t> early_ids;
  std::vector<std::byte*> early_rows;
  std::vector<std::uint32_t> early_missed{0};
  std::vector<std::uint8_t> used;
  std::vector<std::uint32_t> attended;
  std::vector<std::uint32_t> attended_counts;
  std::vector<float> query;
  std::vector<float> last_query;
  std::size_t count = 200;
  const std::uint32_t* shares = nullptr;
  bool fetched = false;
  std::vector<EarlyOutcome> outcomes{{}};
  const EarlyOutcome& outcome = outcomes[0];
};

TEST(ResolveEarlyRows, AttendsTheStepsOwnListsWhereAllAreCorrected) {
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    EarlyScenario scenario(scope, 4, 60);
    scenario.fetch_early(1);
    scenario.step(2, 2.0F);
    scenario.expect_right();
    EXPECT_EQ(scenario.outcome.corrected, scenario.lists_);
    for (std::size_t i = 0; i < scenario.lists_; ++i) {
      EXPECT_EQ(scenario.list(scenario.attended, i), scenario.list(scenario.ids_, i));
    }
    EXPECT_GT(scenario.outcome.useful, 0U);
    EXPECT_GT(scenario.outcome.late, 0U);
    EXPECT_GT(scenario.outcome.wasted, 0U);
  }
}

TEST(ResolveEarlyRows, CorrectsOnlyListsOfWhichAQueryHasTurned) {
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    EarlyScenario scenario(scope, 4, 60);
    scenario.fetch_early(3);
    scenario.query[5 * scenario.shape_.head_dim] = -9;  // of query head 5, KV head 1
    scenario.step(4, 0.9F);
    scenario.expect_right();
    EXPECT_EQ(scenario.outcome.corrected, 1U);
    const std::size_t turned = scope == ListScope::kv_head ? 1 : 5;
    for (std::size_t i = 0; i < scenario.lists_; ++i) {
      EXPECT_EQ(scenario.list(scenario.attended, i),
                scenario.list(i == turned ? scenario.ids_ : scenario.early_ids, i));
    }
  }
}

TEST(ResolveEarlyRows, CorrectsQueriesThatHaveNoDirection) {
  EarlyScenario scenario(ListScope::kv_head, 1, 20);
  scenario.fetch_early(5);
  std::ranges::fill(scenario.last_query, 0.0F);
  scenario.step(6, 0.5F);
  EXPECT_EQ(scenario.outcome.corrected, 2U);
  scenario.expect_right();
}

TEST(ResolveEarlyRows, MissesEverythingThatIsNotResidentWhenNothingWasFetched) {
  EarlyScenario scenario(ListScope::kv_head, 2, 50);
  scenario.step(7, 0.0F);
  scenario.expect_right();
  EXPECT_EQ(scenario.outcome.corrected, 2U);
  EXPECT_EQ(scenario.outcome.useful, 0U);
  EXPECT_GT(scenario.outcome.late, 0U);
}

TEST(ResolveEarlyRows, KeepsListsWithinTheStepsCount) {
  EarlyScenario scenario(ListScope::kv_head, 2, 50);
  scenario.fetch_early(8);
  scenario.count = 49;  // a token that waits for its index takes a place
  scenario.step(9, 0.0F);
  scenario.expect_right();
  for (const std::uint32_t attended : scenario.attended_counts) EXPECT_EQ(attended, 49U);
}

TEST(ResolveEarlyRows, KeepsListsWithinWhatTheirHeadIsDealt) {
  EarlyScenario scenario(ListScope::kv_head, 2, 50);
  scenario.shares = testing::dealt_shares.data();
  scenario.fetch_early(8);
  scenario.count = 40;
  scenario.step(9, 0.0F);
  scenario.expect_right();
  EXPECT_EQ(scenario.attended_counts[0], 20U);
  EXPECT_EQ(scenario.attended_counts[1], 50U) << "all that were selected";
}

}  // namespace
}  // namespace terrace
