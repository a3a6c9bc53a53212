// Copies of rows for CUDA against the host's kernels: the same bytes.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <set>

#include "cuda/device_run.hpp"
#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::DeviceRun;
using testing::Guarded;

KvShape make_shape(std::size_t group, std::size_t kv_heads, std::size_t head_dim, Dtype dtype) {
  return {.layers = 1,
          .query_heads = group * kv_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .dtype = dtype};
}

void expect_same_rows(const BlockStore& store, const BlockStore& expected) {
  for (std::size_t p = 0; p < store.tokens(); ++p) {
    for (std::size_t head = 0; head < store.shape().kv_heads; ++head) {
      ASSERT_EQ(std::memcmp(store.row(head, p), expected.row(head, p), store.shape().row_bytes()),
                0)
          << "position " << p << ", head " << head;
    }
  }
}

class CudaRows : public ::testing::Test {
 protected:
  DeviceRun device_;
};

TEST_F(CudaRows, StoresWhatTheHostStores) {
  Serial threads;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16}) {
    for (const auto& [head_dim, block_tokens, tokens] :
         {std::tuple{6U, 1U, 200U}, {64U, 32U, 300U}, {130U, 3U, 50U}}) {
      const KvShape shape = make_shape(1, 3, head_dim, dtype);
      SCOPED_TRACE(testing::to_text(shape));
      // A QKV projection: all heads of a token side by side, then something else.
      const std::size_t token_stride = (3 * head_dim + 5) * size_bytes(dtype);
      std::vector<std::byte> keys(tokens * token_stride);
      std::vector<std::byte> values(keys.size());
      Rng rng(testing::seed());
      for (std::byte& x : keys) x = static_cast<std::byte>(rng());
      for (std::byte& x : values) x = static_cast<std::byte>(rng());
      BlockStore store(shape, block_tokens, tokens + 20, size_bytes(dtype));
      BlockStore expected(shape, block_tokens, tokens + 20, size_bytes(dtype));
      StoreRows op{.source = {.keys = keys.data(),
                              .values = values.data(),
                              .token_stride = token_stride,
                              .head_stride = head_dim * size_bytes(dtype)},
                   .tokens = {5, 5 + tokens},
                   .target = expected.table(),
                   .shape = shape};
      kernels::host::store_rows(op, threads);
      op.target = store.table();
      for (const bool crosses_link : {false, true}) {
        op.crosses_link = crosses_link;
        const auto bytes =
            device_([&](const auto& launch) { return kernels::cuda::store_rows(op, launch); });
        EXPECT_EQ(bytes.value(), crosses_link ? tokens * shape.token_bytes() : 0);
      }
      expect_same_rows(store, expected);
    }
  }
}

TEST_F(CudaRows, CopiesTheKeysThatTheHostCopies) {
  Serial threads;
  for (const std::size_t head_dim : {10U, 64U}) {
    const KvShape shape = make_shape(1, 3, head_dim, Dtype::bf16);
    BlockStore store(shape, 32, 100);
    store.fill_normal(3);
    constexpr std::size_t chunk_tokens = 24;
    const auto copy = [&](auto copy_keys) {
      std::vector<Guarded<std::byte>> memory(
          4, Guarded<std::byte>(chunk_tokens * shape.token_bytes() / 2));
      std::vector<std::byte*> chunks;
      for (auto& chunk : memory) chunks.push_back(chunk.data());
      copy_keys(KeyCopy{
          .shape = shape,
          .rows = store.table(),
          .tokens = {11, 93},
          .index = {.chunks = chunks.data(), .chunk_tokens = chunk_tokens, .first_token = 4}});
      std::vector<std::byte> all;
      for (auto& chunk : memory) {
        EXPECT_TRUE(chunk.intact());
        all.insert(all.end(), chunk.span().begin(), chunk.span().end());
      }
      return all;
    };
    const auto expected = copy([&](const KeyCopy& op) { kernels::host::key_copy(op, threads); });
    const auto copied = copy([&](const KeyCopy& op) {
      device_([&](const auto& launch) { return kernels::cuda::key_copy(op, launch); });
    });
    EXPECT_EQ(copied, expected);
  }
}

/// A layer whose rows are all on the host and some also on the device, and a selection from it.
class Recall {
 public:
  Recall(ListScope scope, std::size_t group, std::size_t list_size, std::size_t head_dim)
      : scope_(scope),
        shape_(make_shape(group, 2, head_dim, Dtype::f16)),
        lists_(scope == ListScope::kv_head ? 2 : 2 * group),
        stride_(list_size + 3),
        host_(shape_, 16, positions),
        device_(shape_, 16, positions),
        staging_(lists_ * stride_ * shape_.row_bytes()),
        ids_(lists_ * stride_),
        counts_(lists_, static_cast<std::uint32_t>(list_size)),
        rows_(lists_ * stride_),
        missed_(lists_ * stride_),
        missed_count_(1),
        seen_(shape_.kv_heads * positions),
        epoch_(1) {
    host_.fill_normal(4);
    device_.fill_normal(4);
    for (std::size_t b = 0; b < device_.blocks().size(); b += 2) device_.blocks()[b] = nullptr;
  }

  void select(std::uint64_t stream) {
    Rng rng(testing::seed(), {stream});
    for (std::size_t list = 0; list < lists_; ++list) {
      std::set<std::uint32_t> chosen;
      while (chosen.size() < counts_[list]) {
        chosen.insert(static_cast<std::uint32_t>(rng.below(positions)));
      }
      std::copy(chosen.begin(), chosen.end(),
                ids_.begin() + static_cast<std::ptrdiff_t>(list * stride_));
    }
  }

  void run(DeviceRun& device) {
    device([&](const auto& launch) {
      return kernels::cuda::resolve_rows({.shape = shape_,
                                          .scope = scope_,
                                          .ids = ids_.data(),
                                          .id_count = counts_.data(),
                                          .id_stride = stride_,
                                          .resident = device_.table(),
                                          .staging = staging_.data(),
                                          .rows = rows_.data(),
                                          .missed = missed_.data(),
                                          .missed_count = missed_count_.data(),
                                          .seen = seen_.data(),
                                          .seen_epoch = epoch_.data(),
                                          .seen_stride = positions},
                                         launch);
    });
    device([&](const auto& launch) {
      return kernels::cuda::fetch_rows({.shape = shape_,
                                        .missed = missed_.data(),
                                        .missed_count = missed_count_.data(),
                                        .source = host_.table()},
                                       launch);
    });
    EXPECT_EQ(device.moved(), missed_count_[0] * shape_.row_bytes());
  }

  /// Checks rows against what was selected, and that what is not resident was fetched once.
  void expect_right() {
    std::map<std::pair<std::size_t, std::uint32_t>, std::byte*> staged;
    for (std::size_t list = 0; list < lists_; ++list) {
      const std::size_t head = list * 2 / lists_;
      for (std::size_t i = 0; i < counts_[list]; ++i) {
        const std::uint32_t position = ids_[list * stride_ + i];
        std::byte* const row = rows_[list * stride_ + i];
        if (std::byte* const resident = device_.row(head, position)) {
          ASSERT_EQ(row, resident);
          continue;
        }
        ASSERT_EQ(std::memcmp(row, host_.row(head, position), shape_.row_bytes()), 0);
        const auto [place, first] = staged.insert({{head, position}, row});
        ASSERT_EQ(place->second, row) << "staged twice";
        if (first) {
          EXPECT_EQ(row, staging_.data() + (list * stride_ + i) * shape_.row_bytes());
        }
      }
    }
    EXPECT_EQ(missed_count_[0], staged.size());
    EXPECT_TRUE(staging_.intact());
  }

  /// Checks that misses of a head come in the order of its lists.
  void expect_order() const {
    std::map<std::uint32_t, std::byte*> last;
    for (std::size_t i = 0; i < missed_count_[0]; ++i) {
      std::byte*& before = last[missed_[i].head];
      EXPECT_LT(before, missed_[i].target);
      before = missed_[i].target;
    }
  }

  void set_epoch(std::uint32_t epoch) {
    epoch_[0] = epoch;
    std::ranges::fill(seen_, epoch);
  }
  [[nodiscard]] std::uint32_t epoch() const { return epoch_[0]; }

 private:
  static constexpr std::size_t positions = 400;
  ListScope scope_;
  KvShape shape_;
  std::size_t lists_;
  std::size_t stride_;
  BlockStore host_;
  BlockStore device_;
  Guarded<std::byte> staging_;
  std::vector<std::uint32_t> ids_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::byte*> rows_;
  std::vector<MissedRow> missed_;
  std::vector<std::uint32_t> missed_count_;
  std::vector<std::uint32_t> seen_;
  std::vector<std::uint32_t> epoch_;
};

TEST_F(CudaRows, FindsResidentRowsAndFetchesTheOthersOnce) {
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    for (const std::size_t head_dim : {6U, 8U, 64U}) {
      for (const std::size_t size : {0U, 1U, 60U, 300U}) {
        SCOPED_TRACE(std::to_string(size) + " rows per list, head_dim " + std::to_string(head_dim) +
                     ", " + testing::seed_text());
        Recall recall(scope, 4, size, head_dim);
        for (std::uint64_t step = 0; step < 3; ++step) {
          recall.select(step);
          recall.run(device_);
          recall.expect_right();
          recall.expect_order();
        }
      }
    }
  }
}

TEST_F(CudaRows, StartsOverWhenTheCountOfPlacesIsNearItsEnd) {
  Recall recall(ListScope::query_head, 4, 60, 8);
  recall.set_epoch(std::numeric_limits<std::uint32_t>::max() - 100);
  for (std::uint64_t step = 0; step < 3; ++step) {
    recall.select(step);
    recall.run(device_);
    recall.expect_right();
  }
  EXPECT_LE(recall.epoch(), 3 * 8 * 63U);
}

}  // namespace
}  // namespace terrace
