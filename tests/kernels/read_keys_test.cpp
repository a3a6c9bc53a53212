// Keys of rows, read as f32 and copied as they are.
#include <gmock/gmock.h>

#include <functional>
#include <string>

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
      ASSERT_TRUE(kernels::host::read_keys({.shape = shape,
                                            .rows = store.table(),
                                            .tokens = {5, 18},
                                            .head = 1,
                                            .first_dim = 6,
                                            .dims = dims},
                                           target.data()));
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
  ASSERT_TRUE(kernels::host::key_copy(
      {.shape = shape,
       .rows = store.table(),
       .tokens = {11, 93},
       .index = {.chunks = chunks.data(), .chunk_tokens = chunk_tokens, .first_token = 4}},
      alone));
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

TEST(KeyChannels, PutsEachChannelBesideThatOfTheNextToken) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16}) {
    for (const bool partial : {false, true}) {
      const KvShape shape = make_shape(1, 3, 10, dtype);
      BlockStore store(shape, 32, 100, 1);
      store.fill_normal(3);
      constexpr std::size_t chunk_tokens = 24;
      const std::vector<std::uint32_t> numbers{7, 0, 3, 1, 2, 9, 9, 8, 4};  // [kv_heads, 3]
      const ChannelShape channels{.count = 3, .partial = partial};
      const std::size_t stored = partial ? 3 : 10;
      std::vector<Guarded<std::byte>> memory(
          4, Guarded<std::byte>(3 * stored * chunk_tokens * size_bytes(dtype)));
      std::vector<std::byte*> chunks;
      for (auto& chunk : memory) chunks.push_back(chunk.data());
      for (std::size_t head = 0; head < 3; ++head) {
        ASSERT_TRUE(kernels::host::key_channels(
            {.shape = shape,
             .rows = store.table(),
             .tokens = {11, 93},
             .head = head,
             .channels = channels,
             .index = {.fixed = reinterpret_cast<const std::byte*>(numbers.data()),
                       .chunks = chunks.data(),
                       .chunk_tokens = chunk_tokens,
                       .first_token = 4}}));
      }
      for (std::size_t token = 0; token < 96; ++token) {
        for (std::size_t place = 0; place < 3 * stored; ++place) {
          const std::size_t p = token + 4;
          const std::size_t i = partial ? numbers[place] : place % stored;
          const float expected = p >= 11 && p < 93 ? store.key(place / stored, p, i) : 0.0F;
          ASSERT_EQ(load_f32(chunks[token / chunk_tokens], dtype,
                             place * chunk_tokens + token % chunk_tokens),
                    expected);
        }
      }
      for (const auto& chunk : memory) EXPECT_TRUE(chunk.intact());
    }
  }
}

/// Checks that arguments with one that is bad are refused, and nothing is written to `memory`.
template <typename Arguments, typename Call, typename T>
void expect_refused(
    const Arguments& right, const Call& call, Guarded<T>& memory,
    const std::vector<std::pair<std::function<void(Arguments&)>, const char*>>& bad) {
  for (const auto& [make, text] : bad) {
    Arguments wrong = right;
    make(wrong);
    const Status refused = call(wrong);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(refused.error().message()), ::testing::HasSubstr(text));
    EXPECT_TRUE(std::ranges::all_of(memory.span(), [](T each) { return each == T{}; })) << text;
  }
  EXPECT_TRUE(call(right).has_value());
}

constexpr std::size_t absurd = std::size_t{1} << 62;

TEST(ReadKeys, RefusesWhatIsNotThere) {
  using kernels::host::KeySlice;
  const KvShape shape = make_shape(1, 2, 40, Dtype::f16);
  BlockStore store(shape, 8, 24);
  store.fill_normal(3);
  std::byte* const holes[] = {store.table().blocks[0], nullptr, store.table().blocks[2]};
  Guarded<float> target(14 * 80);
  const KeySlice right{
      .shape = shape, .rows = store.table(), .tokens = {5, 19}, .head = 1, .dims = 80};
  const auto read = [&](const KeySlice& slice) {
    return kernels::host::read_keys(slice, target.data());
  };
  expect_refused<KeySlice>(right, read, target,
                           {{[](KeySlice& s) { s.shape.kv_heads = 0; }, "KV heads"},
                            {[](KeySlice& s) { s.shape.kv_heads = absurd; }, "KV heads"},
                            {[](KeySlice& s) { s.shape.head_dim = 0; }, "head_dim"},
                            {[](KeySlice& s) { s.shape.head_dim = absurd; }, "head_dim"},
                            {[](KeySlice& s) {
                               s.shape.kv_heads = std::size_t{1} << 32;
                               s.shape.head_dim = std::size_t{1} << 31;
                             },
                             "2^64 bytes"},
                            {[](KeySlice& s) { s.rows.blocks = nullptr; }, "blocks"},
                            {[](KeySlice& s) { s.rows.block_tokens = 0; }, "blocks"},
                            {[](KeySlice& s) { s.rows.block_tokens = absurd; }, "blocks"},
                            {[&](KeySlice& s) { s.rows.blocks = holes; }, "every block"},
                            {[](KeySlice& s) { s.tokens = {19, 5}; }, "tokens"},
                            {[](KeySlice& s) { s.tokens.end = absurd; }, "tokens"},
                            {[](KeySlice& s) { s.head = 2; }, "head 2 of 2"},
                            {[](KeySlice& s) { s.first_dim = 1; }, "80 dimensions from 1 on"},
                            {[](KeySlice& s) { s.first_dim = absurd; }, "dimensions"},
                            {[](KeySlice& s) { s.dims = absurd * 4 - 1; }, "dimensions"}});
  EXPECT_FALSE(kernels::host::read_keys(right, nullptr)) << "no target";
  EXPECT_FALSE(kernels::host::read_keys(right, reinterpret_cast<float*>(store.row(1, 18))))
      << "target within the rows";
  EXPECT_TRUE(kernels::host::read_keys({.shape = shape, .tokens = {5, 5}}, nullptr))
      << "nothing is read";
}

TEST(KeyCopy, RefusesWhatIsNotThere) {
  using kernels::host::KeyCopy;
  const KvShape shape = make_shape(1, 2, 10, Dtype::bf16);
  BlockStore store(shape, 8, 24);
  store.fill_normal(3);
  std::byte* const holes[] = {store.table().blocks[0], nullptr, store.table().blocks[2]};
  Guarded<std::byte> memory(2 * 16 * 20);
  std::byte* const chunks[] = {memory.data()};
  std::byte* const nothing[] = {nullptr};
  const KeyCopy right{.shape = shape,
                      .rows = store.table(),
                      .tokens = {5, 19},
                      .index = {.chunks = chunks, .chunk_tokens = 16, .first_token = 4}};
  const auto copy = [](const KeyCopy& op) {
    Serial alone;
    return kernels::host::key_copy(op, alone);
  };
  expect_refused<KeyCopy>(right, copy, memory,
                          {{[](KeyCopy& c) { c.shape.head_dim = 0; }, "head_dim"},
                           {[](KeyCopy& c) { c.rows.blocks = nullptr; }, "blocks"},
                           {[&](KeyCopy& c) { c.rows.blocks = holes; }, "every block"},
                           {[](KeyCopy& c) { c.tokens = {19, 5}; }, "tokens"},
                           {[](KeyCopy& c) { c.tokens.begin = 3; }, "before the index"},
                           {[](KeyCopy& c) { c.index.chunks = nullptr; }, "chunks"},
                           {[](KeyCopy& c) { c.index.chunk_tokens = 0; }, "chunks"},
                           {[](KeyCopy& c) { c.index.chunk_tokens = absurd; }, "chunks"},
                           {[&](KeyCopy& c) { c.index.chunks = nothing; }, "every chunk"}});
  EXPECT_TRUE(copy({.shape = shape, .tokens = {5, 5}}).has_value()) << "nothing is copied";
}

TEST(KeyChannels, RefusesWhatIsNotThere) {
  using kernels::host::KeyChannels;
  const KvShape shape = make_shape(1, 2, 10, Dtype::bf16);
  BlockStore store(shape, 8, 24);
  store.fill_normal(3);
  std::byte* const holes[] = {store.table().blocks[0], nullptr, store.table().blocks[2]};
  Guarded<std::byte> memory(2 * 16 * 20);
  std::byte* const chunks[] = {memory.data()};
  std::byte* const nothing[] = {nullptr};
  const KeyChannels right{.shape = shape,
                          .rows = store.table(),
                          .tokens = {5, 19},
                          .head = 1,
                          .channels = {.count = 4},
                          .index = {.chunks = chunks, .chunk_tokens = 16, .first_token = 4}};
  expect_refused<KeyChannels>(
      right, kernels::host::key_channels, memory,
      {{[](KeyChannels& c) { c.shape.head_dim = 0; }, "head_dim"},
       {[&](KeyChannels& c) { c.rows.blocks = holes; }, "every block"},
       {[](KeyChannels& c) { c.tokens.begin = 3; }, "before the index"},
       {[&](KeyChannels& c) { c.index.chunks = nothing; }, "every chunk"},
       {[](KeyChannels& c) { c.head = 2; }, "head 2 of 2"},
       {[](KeyChannels& c) { c.channels.count = 0; }, "0 channels of 10"},
       {[](KeyChannels& c) { c.channels.count = 11; }, "11 channels of 10"},
       {[](KeyChannels& c) { c.channels.partial = true; }, "which channels"}});
}

}  // namespace
}  // namespace terrace
