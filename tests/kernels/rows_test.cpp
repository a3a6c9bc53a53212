// Storing rows.
#include <gtest/gtest.h>

#include "kernels/block_store.hpp"
#include "kernels/finds_fault.hpp"
#include "kernels/kernel_run.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::make_shape;
using testing::odd_offset;
using testing::run;

/// Element i of a key (then a value) that names token and head, exact in any dtype.
float mark(std::size_t token, std::size_t head, std::size_t i) {
  return static_cast<float>((token * 31 + head * 7 + i) % 128);
}

void expect_marked(const BlockStore& store, TokenRange tokens) {
  for (std::size_t p = 0; p < store.tokens(); ++p) {
    const bool stored = p >= tokens.begin && p < tokens.end;
    for (std::size_t head = 0; head < store.shape().kv_heads; ++head) {
      for (std::size_t i = 0; i < 2 * store.shape().head_dim; ++i) {
        ASSERT_EQ(store.key(head, p, i), stored ? mark(p, head, i) : -1.0F)
            << "position " << p << ", head " << head << ", element " << i;
      }
    }
  }
}

TEST(StoreRows, PacksStridedTokensAndTouchesNoOther) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t block_tokens : {1U, 3U, 32U}) {
      for (const std::size_t kv_heads : {1U, 3U}) {
        const KvShape shape = make_shape(1, kv_heads, 6, dtype);
        const TokenRange tokens{5, 41};
        BlockStore store(shape, block_tokens, 50, odd_offset(dtype));
        store.fill([](std::size_t, std::size_t, std::size_t) { return -1.0F; });
        // A QKV projection: all heads of a token side by side, then something else.
        const std::size_t element = size_bytes(dtype);
        const std::size_t token_stride = (kv_heads * 6 + 5) * element;
        std::vector<std::byte> keys(tokens.size() * token_stride);
        std::vector<std::byte> values(keys.size());
        for (std::size_t t = 0; t < tokens.size(); ++t) {
          for (std::size_t h = 0; h < kv_heads; ++h) {
            for (std::size_t i = 0; i < 6; ++i) {
              const std::size_t place = t * (kv_heads * 6 + 5) + h * 6 + i;
              store_f32(keys.data(), dtype, place, mark(tokens.begin + t, h, i));
              store_f32(values.data(), dtype, place, mark(tokens.begin + t, h, 6 + i));
            }
          }
        }
        const StoreRows op{.source = {.keys = keys.data(),
                                      .values = values.data(),
                                      .token_stride = token_stride,
                                      .head_stride = 6 * element},
                           .tokens = tokens,
                           .target = store.table(),
                           .shape = shape,
                           .crosses_link = true};
        EXPECT_EQ(run(op), tokens.size() * shape.token_bytes());
        expect_marked(store, tokens);
      }
    }
  }
}

TEST(StoreRows, CopiesRowsThatAlreadyHaveTheLayout) {
  const KvShape shape = make_shape(1, 2, 8, Dtype::f16);
  BlockStore source(shape, 64, 64);
  source.fill(mark);
  BlockStore target(shape, 16, 64);
  target.fill([](std::size_t, std::size_t, std::size_t) { return -1.0F; });
  const StoreRows op{.source = {.keys = source.row(0, 10),
                                .values = source.row(0, 10) + 16,
                                .token_stride = 32,
                                .head_stride = 64 * 32},
                     .tokens = {10, 60},
                     .target = target.table(),
                     .shape = shape,
                     .crosses_link = true};
  EXPECT_EQ(run(op), 50 * shape.token_bytes());
  expect_marked(target, {10, 60});
}

TEST(StoreRows, FindsAWrongElement) {
  const KvShape shape = make_shape(1, 2, 8, Dtype::f16);
  for (const std::size_t position : {9U, 10U, 59U, 60U}) {  // beside the range, and in it
    BlockStore store(shape, 16, 64);
    store.fill([](std::size_t p, std::size_t head, std::size_t i) {
      return p >= 10 && p < 60 ? mark(p, head, i) : -1.0F;
    });
    expect_marked(store, {10, 60});
    store_f32(store.row(1, position), Dtype::f16, 15, store.key(1, position, 15) + 1);
    EXPECT_TRUE(testing::finds_fault([&] { expect_marked(store, {10, 60}); })) << position;
  }
}

TEST(StoreRows, WritesNothingForNoTokens) {
  const KvShape shape = make_shape(1, 1, 8, Dtype::f16);
  BlockStore target(shape, 16, 16);
  EXPECT_EQ(run(StoreRows{.tokens = {3, 3}, .target = target.table(), .shape = shape}), 0U);
}

}  // namespace
}  // namespace terrace
