// Keys of rows, read as f32 and copied as they are.
#include <gtest/gtest.h>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::Guarded;
using testing::make_shape;

TEST(ReadKeys, GivesEveryElementExactly) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t dims : {1U, 2U, 7U, 8U, 15U, 16U, 30U, 33U}) {
      const KvShape shape = make_shape(1, 2, 40, dtype);
      BlockStore store(shape, 3, 20, 1);
      store.fill_normal(3);
      Guarded<float> target(13 * dims);
      kernels::host::read_keys({.shape = shape,
                                .rows = store.table(),
                                .tokens = {5, 18},
                                .head = 1,
                                .first_dim = 6,
                                .dims = dims},
                               target.data());
      for (std::size_t t = 0; t < 13; ++t) {
        for (std::size_t i = 0; i < dims; ++i) {
          ASSERT_EQ(target[t * dims + i], store.key(1, 5 + t, 6 + i));
        }
      }
      EXPECT_TRUE(target.intact());
    }
  }
}

TEST(KeyCopy, PutsKeysIntoTheirPlacesOfChunks) {
  const KvShape shape = make_shape(1, 3, 10, Dtype::bf16);
  BlockStore store(shape, 32, 100);
  store.fill_normal(3);
  const std::size_t chunk_tokens = 24;
  std::vector<Guarded<std::uint16_t>> memory(4, Guarded<std::uint16_t>(3 * chunk_tokens * 10));
  std::vector<std::byte*> chunks;
  for (auto& chunk : memory) chunks.push_back(reinterpret_cast<std::byte*>(chunk.data()));
  Serial alone;
  kernels::host::key_copy(
      {.shape = shape,
       .rows = store.table(),
       .tokens = {11, 93},
       .index = {.chunks = chunks.data(), .chunk_tokens = chunk_tokens, .first_token = 4}},
      alone);
  for (std::size_t token = 0; token < 96; ++token) {
    for (std::size_t h = 0; h < 3; ++h) {
      for (std::size_t i = 0; i < 10; ++i) {
        const std::size_t p = token + 4;
        const float expected = p >= 11 && p < 93 ? store.key(h, p, i) : 0.0F;
        ASSERT_EQ(load_f32(chunks[token / chunk_tokens], Dtype::bf16,
                           (h * chunk_tokens + token % chunk_tokens) * 10 + i),
                  expected);
      }
    }
  }
  for (const auto& chunk : memory) EXPECT_TRUE(chunk.intact());
}

}  // namespace
}  // namespace terrace
