// Decisions of retention carried out: values that are added to others.
#include "layer/decision.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/scenario.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/dtype.hpp"

namespace terrace {
namespace {

using testing::Traffic;

constexpr std::size_t sinks = 4;
constexpr std::size_t length = 120;
constexpr std::size_t leaving_end = 104;
constexpr std::size_t keep = 40;
constexpr std::size_t block_tokens = 8;

TEST(EntryLayout, HasARowForEachEntryAndPlacesForTheLongestList) {
  const KvShape shape = testing::Scenario{}.runtime.shape;
  const EntryLayout layout(shape, std::array<std::size_t, 2>{33, 81});
  EXPECT_EQ(layout.capacity, 81U);
  EXPECT_EQ(layout.pointers_at(), align_up((33 + 81) * shape.row_bytes(), 64));
  EXPECT_EQ(layout.bias_at() - layout.pointers_at(), 2 * 81 * sizeof(std::byte*));
  const auto backend = testing::make_scenario_backend({});
  EntryMemory memory;
  ASSERT_TRUE(memory.reserve(*backend, layout, Tier::host).has_value());
  EXPECT_EQ(memory.row(1, 0), memory.row(0, 33));
  EXPECT_EQ(memory.row(1, 81), memory.row(0, 0) + (33 + 81) * shape.row_bytes());
}

/// A layer with rows in blocks on the host, and its kept entries.
class DecisionTest : public ::testing::Test {
 protected:
  DecisionTest() {
    for (std::size_t token = 0; token < length; token += block_tokens) {
      blocks_.push_back(traffic_.rows(1, {token, token + block_tokens}));
    }
    scores_.start(shape_.kv_heads);
  }

  /// Decides on `leaving`, by a policy of that name, as between two decoded tokens.
  void decide_on(TokenRange leaving, const std::string& name, std::uint64_t seed = 1) {
    Flush flush{.shape = shape_,
                .layer = LayerId{1},
                .sinks = sinks,
                .leaving = leaving,
                .length = length,
                .decoding = true,
                .keep = std::vector<std::size_t>(shape_.kv_heads, keep),
                .seed = seed,
                .block_tokens = block_tokens};
    for (std::vector<std::byte>& block : blocks_) flush.blocks.push_back(block.data());
    ASSERT_TRUE(entries_.next().reserve(*backend_, EntryLayout(shape_, flush.keep)).has_value());
    const auto policy = policies::make_retention_policy(name).value();
    const auto made = decide(*policy, flush, {entries_, scores_});
    ASSERT_TRUE(made.has_value()) << made.error().message();
    entries_.take_next();
  }

  void score_all_alike() {
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      for (std::size_t p = 0; p < length; ++p) scores_.set(head, p, 2);
    }
  }

  /// Returns all kept rows, and the tokens that they are of.
  [[nodiscard]] std::vector<std::byte> kept_rows() const {
    std::vector<std::byte> rows;
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      for (std::size_t i = 0; i < entries_.now().heads[head].size(); ++i) {
        const std::byte* const row = entries_.now().memory().row(head, i);
        rows.insert(rows.end(), row, row + shape_.row_bytes());
      }
    }
    return rows;
  }

  KvShape shape_ = testing::Scenario{}.runtime.shape;
  Traffic traffic_{shape_, 1};
  std::unique_ptr<Backend> backend_ = testing::make_scenario_backend({});
  std::vector<std::vector<std::byte>> blocks_;
  KeptEntries entries_;
  PositionScores scores_;
};

TEST_F(DecisionTest, OfCamIsThatOfRecentWhereNoTokenDrewAttention) {
  decide_on({sinks, leaving_end}, "cam");
  const std::vector<std::byte> rows = kept_rows();
  const std::vector<EntryList> lists = entries_.now().heads;
  entries_.clear();
  scores_.clear();
  decide_on({sinks, leaving_end}, "recent");
  EXPECT_EQ(rows, kept_rows());
  for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
    EXPECT_EQ(lists[head].positions, entries_.now().heads[head].positions);
    EXPECT_EQ(lists[head].degrees, entries_.now().heads[head].degrees);
    EXPECT_EQ(std::ranges::count(lists[head].gifted, 1), 0);
  }
}

TEST_F(DecisionTest, OfCamConservesTheSumOfValuesAndLeavesKeysAndDegrees) {
  score_all_alike();
  decide_on({sinks, leaving_end}, "cam");
  for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
    std::vector<double> sums(shape_.head_dim);
    const auto add = [&](const std::byte* row, double sign) {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] += sign * static_cast<double>(load_f32(row, shape_.dtype, shape_.head_dim + i));
      }
    };
    for (std::size_t p = sinks; p < leaving_end; ++p) add(traffic_.row(1, head, p).data(), -1);
    const EntryList& list = entries_.now().heads[head];
    ASSERT_EQ(list.size(), keep);
    for (std::size_t i = 0; i < keep; ++i) {
      const std::byte* const row = entries_.now().memory().row(head, i);
      add(row, 1);
      EXPECT_EQ(list.degrees[i], 1U);
      EXPECT_EQ(list.positions[i], leaving_end - keep + i);
      const auto token = traffic_.row(1, head, list.positions[i]);
      EXPECT_EQ(std::memcmp(row, token.data(), token.size() / 2), 0);
      // The first 32 of those that stay have taken all that went.
      EXPECT_EQ(entries_.row_of(head, list.positions[i]) == nullptr, i < 32);
    }
    // 32 values are rounded to f16: each by no more than 2^-11 of itself, about 4.
    for (const double sum : sums) EXPECT_NEAR(sum, 0, 32 * 4.0 / 2048);
  }
}

TEST_F(DecisionTest, OfCamRemembersWhichEntriesHaveTakenGifts) {
  score_all_alike();
  decide_on({sinks, 56}, "cam");
  decide_on({56, 60}, "cam");  // 4 are dropped, and their values go to the 32 after them
  EXPECT_EQ(std::ranges::count(entries_.now().heads[0].gifted, 1), 32);
  scores_.start(shape_.kv_heads);
  decide_on({60, 64}, "cam");  // 4 are dropped, and no token gets their values
  const EntryList& list = entries_.now().heads[0];
  EXPECT_EQ(std::ranges::count(list.gifted, 1), 28);
  EXPECT_EQ(entries_.row_of(0, list.positions[0]), nullptr);
  EXPECT_NE(entries_.row_of(0, list.positions[39]), nullptr);
}

TEST_F(DecisionTest, OfCamIsTheSameBitsForTheSameSeedAlone) {
  for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
    for (std::size_t p = 0; p < length; ++p) scores_.set(head, p, static_cast<float>(1 + p * p));
  }
  const auto rows = [&](std::uint64_t seed) {
    entries_.clear();
    decide_on({sinks, leaving_end}, "cam", seed);
    return kept_rows();
  };
  const std::vector<std::byte> first = rows(5);
  EXPECT_EQ(rows(5), first);
  EXPECT_NE(rows(6), first);
}

}  // namespace
}  // namespace terrace
