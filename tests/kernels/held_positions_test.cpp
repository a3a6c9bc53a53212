// Selections beside positions that are held: these are left out, and the others chosen as if they
// were all there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "kernels/kernel_run.hpp"
#include "kernels/pq_index.hpp"
#include "kernels/selected.hpp"
#include "kernels/selection_check.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using testing::is_top;
using testing::make_shape;
using testing::run;
using testing::Selected;

constexpr std::size_t kv_heads = 3;
constexpr std::size_t stride = 96;
constexpr TokenRange candidates{9, 215};

/// Positions that each KV head holds, in memory with guarded ends: for the first head some that are
/// no candidates, for the second head none, for the third head every third position.
class Held {
 public:
  Held() : positions_(kv_heads * stride), counts_(kv_heads) {
    counts_.span()[0] = list(0, {0, 8, 9, 10, 77, 213, 214, 215, 400});
    counts_.span()[1] = 0;
    std::vector<std::uint32_t> thirds;
    for (std::uint32_t p = 9; p < 215; p += 3) thirds.push_back(p);
    counts_.span()[2] = list(2, thirds);
  }

  [[nodiscard]] HeldPositions view() {
    return {.positions = positions_.data(), .count = counts_.data(), .stride = stride};
  }
  [[nodiscard]] static std::size_t among_candidates(std::size_t head) {
    return std::array<std::size_t, kv_heads>{5, 0, 69}[head];
  }

 private:
  std::uint32_t list(std::size_t head, const std::vector<std::uint32_t>& positions) {
    std::ranges::copy(positions, positions_.data() + head * stride);
    return static_cast<std::uint32_t>(positions.size());
  }

  testing::Guarded<std::uint32_t> positions_;
  testing::Guarded<std::uint32_t> counts_;
};

template <typename Weigh>
void expect_top_of_others(Selected& selected, std::size_t count, Weigh weigh) {
  for (std::size_t head = 0; head < kv_heads; ++head) {
    SCOPED_TRACE("head " + std::to_string(head) + ", count " + std::to_string(count));
    std::vector<double> weights(candidates.size());
    weigh(head, weights.data());
    const auto held = static_cast<std::size_t>(
        std::ranges::count_if(weights, [](double weight) { return std::isnan(weight); }));
    EXPECT_EQ(held, Held::among_candidates(head));
    EXPECT_TRUE(
        is_top(selected.ids(head), candidates.begin, count, weights, testing::selection_tolerance));
  }
  EXPECT_TRUE(selected.intact());
}

class HeldPositionsTest : public ::testing::TestWithParam<std::tuple<std::size_t, GroupReduction>> {
 protected:
  [[nodiscard]] static KvShape shape() {
    return make_shape(std::get<0>(GetParam()), kv_heads, 64, Dtype::f16);
  }

  /// Calls `select` for few rows, for as many as a head has left, and for more than there are.
  template <typename Select>
  static void for_each_count(Select select) {
    for (const std::size_t count : {0U, 1U, 20U, 137U, 201U, 206U, 500U}) {
      Selected selected(shape(), candidates, count);
      SelectCommon common = selected.common(std::get<1>(GetParam()));
      Held held;
      common.held = held.view();
      select(selected, common, count);
    }
  }
};

TEST_P(HeldPositionsTest, AreLeftOutByExactScores) {
  testing::BlockStore store(shape(), 32, 220);
  store.fill_normal(8);
  const testing::KeyIndex index(store, 50, {4, 220});
  for_each_count([&](Selected& selected, const SelectCommon& common, std::size_t count) {
    const ExactSelect op{.common = common, .index = index.view()};
    run(op);
    expect_top_of_others(selected, count, [&](std::size_t head, double* weights) {
      kernels::reference::exact_weights(op, head, weights);
    });
  });
}

TEST_P(HeldPositionsTest, AreLeftOutByScoresOfChannels) {
  testing::BlockStore store(shape(), 32, 220);
  store.fill_normal(8);
  constexpr ChannelShape channels{.count = 16};
  const testing::ChannelIndex index(store, channels, 50, {4, 220});
  for_each_count([&](Selected& selected, const SelectCommon& common, std::size_t count) {
    const ChannelSelect op{.common = common, .channels = channels, .index = index.view()};
    run(op);
    expect_top_of_others(selected, count, [&](std::size_t head, double* weights) {
      kernels::reference::channel_weights(op, head, weights);
    });
  });
}

TEST_P(HeldPositionsTest, AreLeftOutByScoresFromCodes) {
  // Words of one sub-space and four bits are fewer than candidates, and ties.
  for (const PqShape pq :
       {PqShape{.subspaces = 4, .bits = 6}, PqShape{.subspaces = 1, .bits = 4}}) {
    testing::PqIndex index(shape(), pq, 37, candidates.end, 3);
    index.fill_codes();
    for_each_count([&](Selected& selected, const SelectCommon& common, std::size_t count) {
      const PqSelect op{.common = common, .pq = pq, .index = index.view()};
      run(op);
      expect_top_of_others(selected, count, [&](std::size_t head, double* weights) {
        kernels::reference::pq_weights(op, head, weights);
      });
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, HeldPositionsTest,
                         ::testing::Combine(::testing::Values(1, 4),
                                            ::testing::Values(GroupReduction::sum_softmax,
                                                              GroupReduction::max_softmax,
                                                              GroupReduction::sum_logits)));

}  // namespace
}  // namespace terrace
