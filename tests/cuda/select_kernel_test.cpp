// Selections and codes for CUDA against the reference.
#include <gtest/gtest.h>

#include "cuda/device_run.hpp"
#include "kernels/pq_index.hpp"
#include "kernels/selection_check.hpp"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::DeviceRun;
using testing::Guarded;
using testing::is_top;
using testing::PqIndex;

// As for the host's kernels: weights are wrong by the rounding of a logit of size 1 and of an
// exponential, and neighbours in rank differ by more than that at the sizes used.
constexpr double tolerance = 2e-5;

constexpr GroupReduction reductions[] = {GroupReduction::sum_softmax, GroupReduction::max_softmax,
                                         GroupReduction::sum_logits};

KvShape make_shape(std::size_t group, std::size_t kv_heads, std::size_t head_dim, Dtype dtype) {
  return {.layers = 1,
          .query_heads = group * kv_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .dtype = dtype};
}

/// Buffers of a selection.
class Chosen {
 public:
  Chosen(const KvShape& shape, TokenRange candidates, std::size_t count)
      : query_(shape.query_heads * shape.head_dim),
        ids_(shape.kv_heads * count),
        counts_(shape.kv_heads),
        scratch_(shape.kv_heads * (shape.group() + 1) * ((candidates.size() + 63) / 64 * 64),
                 std::nanf("")),
        common_{.shape = shape,
                .query = query_.data(),
                .candidates = candidates,
                .count = count,
                .ids = ids_.data(),
                .id_count = counts_.data(),
                .id_stride = count,
                .scratch = scratch_.data()} {
    Rng rng(testing::seed(), {21});
    for (float& x : query_) x = testing::normal(rng);
  }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;

  SelectCommon common(GroupReduction reduction) {
    common_.reduction = reduction;
    return common_;
  }
  [[nodiscard]] std::vector<std::uint32_t> ids(std::size_t head) {
    const auto first = ids_.data() + head * common_.id_stride;
    return {first, first + counts_[head]};
  }
  [[nodiscard]] bool intact() const {
    return ids_.intact() && counts_.intact() && scratch_.intact();
  }

  std::vector<float> query_;

 private:
  Guarded<std::uint32_t> ids_;
  Guarded<std::uint32_t> counts_;
  Guarded<float> scratch_;
  SelectCommon common_;
};

/// Keys of rows in the chunks of an exact index.
class KeyIndex {
 public:
  KeyIndex(const BlockStore& store, std::size_t chunk_tokens, TokenRange tokens) {
    const std::size_t element = size_bytes(store.shape().dtype);
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk_tokens) {
      memory_.emplace_back(store.shape().token_bytes() / 2 * chunk_tokens + element);
      chunks_.push_back(memory_.back().data() + element);  // not aligned to a vector
    }
    view_ = {.chunks = chunks_.data(), .chunk_tokens = chunk_tokens, .first_token = tokens.begin};
    Serial threads;
    kernels::host::key_copy(
        {.shape = store.shape(), .rows = store.table(), .tokens = tokens, .index = view_}, threads);
  }
  [[nodiscard]] const IndexView& view() const { return view_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> chunks_;
  IndexView view_;
};

class CudaSelect : public ::testing::Test {
 protected:
  void select(const PqSelect& op) {
    device_([&](const auto& launch) { return kernels::cuda::pq_select(op, launch); });
  }
  void select(const ExactSelect& op) {
    device_([&](const auto& launch) { return kernels::cuda::exact_select(op, launch); });
  }
  void expect_pq_top(const KvShape& shape, PqShape pq, TokenRange candidates, std::size_t count,
                     GroupReduction reduction) {
    SCOPED_TRACE(testing::to_text(shape) + ", m " + std::to_string(pq.subspaces) + ", b " +
                 std::to_string(pq.bits) + ", " + std::to_string(candidates.size()) +
                 " candidates, count " + std::to_string(count) + ", reduction " +
                 std::to_string(static_cast<int>(reduction)) + ", " + testing::seed_text());
    PqIndex index(shape, pq, 37, candidates.end, 3);
    index.fill_codes();
    Chosen chosen(shape, candidates, count);
    const PqSelect op{.common = chosen.common(reduction), .pq = pq, .index = index.view()};
    select(op);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<double> weights(candidates.size());
      kernels::reference::pq_weights(op, head, weights.data());
      EXPECT_TRUE(is_top(chosen.ids(head), candidates.begin, count, weights, tolerance));
    }
    EXPECT_TRUE(chosen.intact());
  }

  DeviceRun device_;
};

TEST_F(CudaSelect, ByCodesChoosesTheLargestWeightsForEveryShape) {
  // The last two have tables of more than 32 KiB, for a group and for one query head.
  for (const auto& [head_dim, subspaces, bits] : {std::tuple{2U, 1U, 2U},
                                                  {6U, 3U, 4U},
                                                  {64U, 2U, 6U},
                                                  {80U, 5U, 6U},
                                                  {128U, 16U, 8U},
                                                  {80U, 40U, 8U}}) {
    for (const std::size_t group : {1U, 2U, 3U, 4U, 8U}) {
      for (const GroupReduction reduction : reductions) {
        expect_pq_top(make_shape(group, 2, head_dim, Dtype::f16),
                      {.subspaces = subspaces, .bits = bits}, {5, 205}, 20, reduction);
      }
    }
  }
}

TEST_F(CudaSelect, ByCodesChoosesTheLargestWeightsForEveryCount) {
  for (const std::size_t candidates : {0U, 1U, 2U, 64U, 65U, 5000U}) {
    for (const std::size_t count : {0U, 1U, 64U, 1000U, 6000U}) {
      for (const std::size_t group : {1U, 4U}) {
        expect_pq_top(make_shape(group, 2, 64, Dtype::f16), {}, {7, 7 + candidates}, count,
                      GroupReduction::sum_softmax);
      }
    }
  }
}

TEST_F(CudaSelect, ByKeysChoosesTheLargestWeightsForEveryShape) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t head_dim : {2U, 6U, 64U, 80U, 128U, 130U}) {
      for (const std::size_t group : {1U, 3U, 4U, 7U, 8U}) {
        const std::size_t count = head_dim == 64 ? 500 : 20;
        const KvShape shape = make_shape(group, 2, head_dim, dtype);
        SCOPED_TRACE(testing::to_text(shape) + ", " + testing::seed_text());
        BlockStore store(shape, 32, 220);
        store.fill_normal(8);
        const TokenRange candidates{9, 215};
        const KeyIndex index(store, 50, {4, 220});
        Chosen chosen(shape, candidates, count);
        const ExactSelect op{.common = chosen.common(reductions[group % 3]), .index = index.view()};
        select(op);
        for (std::size_t head = 0; head < 2; ++head) {
          std::vector<double> weights(candidates.size());
          kernels::reference::exact_weights(op, head, weights.data());
          EXPECT_TRUE(is_top(chosen.ids(head), candidates.begin, count, weights, tolerance));
        }
        EXPECT_TRUE(chosen.intact());
      }
    }
  }
}

TEST_F(CudaSelect, TakesTheLowerPositionOfTies) {
  // Small whole numbers and a head_dim whose root is a power of two: f32 is exact, so are the ties.
  for (const std::size_t group : {1U, 4U}) {
    const KvShape shape = make_shape(group, 2, 16, Dtype::f16);
    BlockStore store(shape, 32, 5000);
    Rng rng(testing::seed());
    store.fill(
        [&rng](std::size_t, std::size_t, std::size_t) { return static_cast<float>(rng.below(2)); });
    const KeyIndex index(store, 512, {0, 5000});
    for (const std::size_t count : {1U, 77U, 2500U}) {
      Chosen chosen(shape, {1, 4999}, count);
      Chosen expected(shape, {1, 4999}, count);
      for (float& x : chosen.query_) x = std::floor(x);
      expected.query_ = chosen.query_;
      SelectCommon common = expected.common(GroupReduction::sum_logits);
      common.query = expected.query_.data();
      select(
          ExactSelect{.common = chosen.common(GroupReduction::sum_logits), .index = index.view()});
      kernels::reference::exact_select({.common = common, .index = index.view()});
      for (std::size_t head = 0; head < 2; ++head) {
        EXPECT_EQ(chosen.ids(head), expected.ids(head))
            << "group " << group << ", count " << count << ", " << testing::seed_text();
      }
    }
  }
}

TEST_F(CudaSelect, RanksOddLogitsAsTheHostDoes) {
  for (const GroupReduction reduction : reductions) {
    for (const std::size_t group : {1U, 2U}) {
      const KvShape shape = make_shape(group, 1, 16, Dtype::f32);
      BlockStore store(shape, 8, 8);
      store.fill([](std::size_t p, std::size_t, std::size_t i) {
        const float first[] = {std::nanf(""), -HUGE_VALF, HUGE_VALF, 1, 2, 3, 1e-42F, -1};
        return i == 0 ? first[p] : 0.0F;
      });
      const KeyIndex index(store, 8, {0, 8});
      Chosen chosen(shape, {0, 8}, 4);
      std::ranges::fill(chosen.query_, 1.0F);
      select(ExactSelect{.common = chosen.common(reduction), .index = index.view()});
      EXPECT_EQ(chosen.ids(0).size(), 4U);
      EXPECT_EQ(std::ranges::count(chosen.ids(0), 2U), 1);
      if (group == 1 || reduction == GroupReduction::sum_logits) {
        EXPECT_EQ(chosen.ids(0), (std::vector<std::uint32_t>{2, 3, 4, 5}));
      }
    }
  }
}

TEST_F(CudaSelect, CodesAsTheReferenceDoesOnSmallWholeNumbers) {
  // All sums are exact in f32, so that ties are ties and must go to the lower centroid.
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const KvShape shape = make_shape(1, 2, 8, dtype);
    const PqShape pq{.subspaces = 2, .bits = 5};
    Rng rng(testing::seed());
    BlockStore store(shape, 16, 300, size_bytes(dtype));
    store.fill([&rng](std::size_t p, std::size_t, std::size_t i) {
      return p == 50 && i == 3 ? std::nanf("") : static_cast<float>(rng.below(3));
    });
    PqIndex index(shape, pq, 77, 300, 5);
    PqIndex expected(shape, pq, 77, 300, 5);
    index.fill_codes();
    expected.fill_codes();
    for (std::size_t i = 0; i < std::size_t{2} * 2 * 32 * 4; ++i) {
      index.centroid(0, 0, 0)[i] = expected.centroid(0, 0, 0)[i] = static_cast<float>(rng.below(3));
    }
    PqEncode op{.shape = shape, .pq = pq, .rows = store.table(), .tokens = {6, 290}};
    op.index = expected.view();
    kernels::reference::pq_encode(op);
    op.index = index.view();
    device_([&](const auto& launch) { return kernels::cuda::pq_encode(op, launch); });
    for (std::size_t p = 5; p < 300; ++p) {
      for (std::size_t part = 0; part < 4; ++part) {
        ASSERT_EQ(index.code(part / 2, part % 2, p), expected.code(part / 2, part % 2, p))
            << p << " " << testing::seed_text();
      }
    }
    EXPECT_TRUE(index.intact());
  }
}

TEST_F(CudaSelect, CodesEachSubvectorWithItsNearestCentroid) {
  const KvShape shape = make_shape(1, 2, 130, Dtype::f16);
  const PqShape pq{.subspaces = 2, .bits = 8};
  BlockStore store(shape, 7, 60);
  store.fill_normal(5);
  PqIndex index(shape, pq, 13, 60, 0);
  device_([&](const auto& launch) {
    return kernels::cuda::pq_encode(
        {.shape = shape, .pq = pq, .rows = store.table(), .tokens = {0, 60}, .index = index.view()},
        launch);
  });
  const auto distance = [&](std::size_t head, std::size_t j, std::size_t p, std::size_t c) {
    double sum = 0;
    for (std::size_t i = 0; i < 65; ++i) {
      const double difference =
          double{store.key(head, p, j * 65 + i)} - double{index.centroid(head, j, c)[i]};
      sum += difference * difference;
    }
    return sum;
  };
  for (std::size_t p = 0; p < 60; ++p) {
    for (std::size_t part = 0; part < 4; ++part) {
      const std::size_t head = part / 2;
      const std::size_t j = part % 2;
      const double chosen =
          distance(head, j, p, std::to_integer<std::size_t>(index.code(head, j, p)));
      for (std::size_t c = 0; c < 256; ++c) {
        // Compared are f32 sums of size below 3 d: wrong by 1e-6 of that at most.
        ASSERT_LE(chosen, distance(head, j, p, c) + 3e-6 * 65);
      }
    }
  }
}

}  // namespace
}  // namespace terrace
