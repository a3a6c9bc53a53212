#include "layer/index_memory.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "layer/layer_index.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{64} << 10;
constexpr IndexLayout layout{
    .fixed_bytes = 128, .chunk_tokens = 16, .chunk_bytes = chunk_bytes, .chunk_clusters = 0};
constexpr std::size_t chunks_of_slab = 4;

class SharedIndexMemory : public ::testing::Test {
 protected:
  SharedIndexMemory() {
    EXPECT_TRUE(memory_.reserve(*backend_, layout, 2 * chunks_of_slab));
    std::memset(memory_.fixed(), 7, layout.fixed_bytes);
    for (std::size_t i = 0; i < memory_.chunk_count(); ++i) fill(memory_, i, 10 + i);
    EXPECT_TRUE(memory_.share_with(twin_, *backend_));
  }

  static void fill(const IndexMemory& memory, std::size_t chunk, std::size_t value) {
    std::memset(memory.chunk(chunk), static_cast<int>(value), chunk_bytes);
  }
  static int first_byte(const IndexMemory& memory, std::size_t chunk) {
    return static_cast<int>(*memory.chunk(chunk));
  }
  [[nodiscard]] std::size_t in_use() const { return backend_->memory(Tier::host).in_use; }

  std::unique_ptr<Backend> backend_ = testing::make_scenario_backend({});
  IndexMemory memory_{Tier::host};
  IndexMemory twin_{Tier::host};
};

TEST_F(SharedIndexMemory, IsTheSameUntilItIsOwned) {
  EXPECT_EQ(twin_.chunk_count(), memory_.chunk_count());
  EXPECT_EQ(twin_.fixed(), memory_.fixed());
  for (std::size_t i = 0; i < memory_.chunk_count(); ++i) {
    EXPECT_EQ(twin_.chunk(i), memory_.chunk(i));
  }
  EXPECT_TRUE(memory_.shares(layout, {.chunks = {5, 6}}));
  EXPECT_TRUE(memory_.shares(layout, {.chunks = {}, .with_fixed = true}));
}

TEST_F(SharedIndexMemory, IsCopiedWhereItIsWrittenAlone) {
  ASSERT_TRUE(memory_.own(*backend_, layout, {.chunks = {5, 6}}));
  EXPECT_FALSE(memory_.shares(layout, {.chunks = {5, 6}}));
  fill(memory_, 5, 99);
  EXPECT_EQ(first_byte(twin_, 5), 15);
  // The slab is a unit. Its other chunks keep their bytes, other slabs stay shared.
  EXPECT_EQ(first_byte(memory_, 4), 14);
  EXPECT_NE(memory_.chunk(4), twin_.chunk(4));
  EXPECT_EQ(memory_.chunk(chunks_of_slab - 1), twin_.chunk(chunks_of_slab - 1));
  EXPECT_EQ(memory_.fixed(), twin_.fixed());
}

TEST_F(SharedIndexMemory, KeepsTheFixedPartWhereChunksAreBuiltAnew) {
  const IndexPart all{.chunks = {0, 2 * chunks_of_slab}, .with_fixed = true, .keeps_chunks = false};
  ASSERT_TRUE(twin_.own(*backend_, layout, all));
  EXPECT_FALSE(twin_.shares(layout, all));
  EXPECT_EQ(static_cast<int>(*twin_.fixed()), 7);
  *twin_.fixed() = std::byte{8};
  EXPECT_EQ(static_cast<int>(*memory_.fixed()), 7);
  for (std::size_t i = 0; i < memory_.chunk_count(); ++i) {
    fill(twin_, i, 50);
    EXPECT_EQ(first_byte(memory_, i), static_cast<int>(10 + i));
  }
}

TEST_F(SharedIndexMemory, GoesWithItsLastOwner) {
  const std::size_t before = in_use();
  ASSERT_TRUE(memory_.own(*backend_, layout, {.chunks = {0, 1}}));
  const std::size_t slab = chunks_of_slab * chunk_bytes;
  EXPECT_EQ(in_use(), before + slab);
  // Work may still read the old memory, though the twin has given it up.
  twin_.reset();
  EXPECT_EQ(in_use() + PointerTable::bytes_for(2 * chunks_of_slab), before + slab);
  memory_.forget_old_copies();
  EXPECT_EQ(in_use() + PointerTable::bytes_for(2 * chunks_of_slab), before);
  EXPECT_FALSE(memory_.shares(layout, {.chunks = {0, 8}, .with_fixed = true}));
}

TEST_F(SharedIndexMemory, StaysSharedWhereThereIsNoMemory) {
  auto small = testing::make_scenario_backend({.host_memory_limit = 900U << 10});
  IndexMemory memory(Tier::host);
  ASSERT_TRUE(memory.reserve(*small, layout, 2 * chunks_of_slab));
  fill(memory, 2, 42);
  IndexMemory twin(Tier::host);
  ASSERT_TRUE(memory.share_with(twin, *small));
  ASSERT_TRUE(memory.own(*small, layout, {.chunks = {0, 1}}));
  const Status refused = memory.own(*small, layout, {.chunks = {4, 5}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_EQ(memory.chunk(4), twin.chunk(4));
  EXPECT_EQ(first_byte(twin, 2), 42);
}

TEST(LayerIndexKept, ComesBackAsItWas) {
  auto backend = testing::make_scenario_backend({});
  LayerIndex index;
  ASSERT_TRUE(index.image.memory.reserve(*backend, layout, chunks_of_slab));
  index.image.coverage.start({32, 80});
  index.build.hints.pre_rope_keys.assign(4, 1.0F);
  index.build.hints.query_window.assign(2, 2.0F);
  std::memset(index.image.memory.chunk(2), 5, chunk_bytes);
  const std::uint64_t epoch = index.clusters.epoch();
  ASSERT_TRUE(index.keep(*backend));
  ASSERT_TRUE(index.image.memory.own(*backend, layout, {.chunks = {2, 4}}));
  std::memset(index.image.memory.chunk(2), 6, chunk_bytes);
  index.image.coverage.extend_to(96, /*as_batch=*/true);
  index.build.hints.pre_rope_keys.assign(9, 3.0F);
  index.build.hints.query_window.clear();
  index.put_back();
  EXPECT_FALSE(index.has_kept());
  EXPECT_EQ(index.image.coverage.tokens(), (TokenRange{32, 80}));
  EXPECT_EQ(static_cast<int>(*index.image.memory.chunk(2)), 5);
  EXPECT_EQ(index.build.hints.pre_rope_keys.size(), 4U);
  EXPECT_EQ(index.build.hints.query_window, std::vector<float>(2, 2.0F));
  // Caches may know clusters of tokens that have gone.
  EXPECT_NE(index.clusters.epoch(), epoch);
}

}  // namespace
}  // namespace terrace
