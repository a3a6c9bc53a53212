#include "rows/layer_rows.hpp"

#include <gtest/gtest.h>

#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Scenario;

class Rows : public ::testing::Test {
 protected:
  Rows() { EXPECT_TRUE(rows_.reserve(6).has_value()); }
  ~Rows() override {
    for (std::size_t block = 0; block < rows_.blocks(); ++block) rows_.release(block);
    rows_.release_spare_slots();
  }

  static std::byte* page_of(LayerRows& rows, std::size_t block) {
    return HostRows(rows, {}).page(block);
  }

  LayerRows make_rows() { return {plan_, *backend_, *pool_, *host_}; }

  void put(std::size_t block, BlockPlace place) { rows_.put(block, pool_->take().value(), place); }

  Scenario scenario_;
  const std::unique_ptr<Backend> backend_ = testing::make_scenario_backend({});
  const RuntimePlan plan_ = RuntimePlan::make(scenario_.runtime).value();
  const std::unique_ptr<BlockPool> pool_ =
      BlockPool::create(*backend_, plan_.block_bytes()).value();
  const std::unique_ptr<HostTier> host_ = HostTier::open(plan_, *backend_).value();
  LayerRows rows_ = make_rows();
};

TEST_F(Rows, HaveAPageEachAndNoDeviceMemoryAtFirst) {
  EXPECT_EQ(rows_.blocks(), 6U);
  EXPECT_EQ(host_->pages().pages_in_use(), 6U);
  for (std::size_t block = 0; block < 6; ++block) {
    EXPECT_TRUE(rows_.absent(block));
    EXPECT_NE(page_of(rows_, block), nullptr);
    EXPECT_EQ(rows_.on_device(block), nullptr);
  }
  EXPECT_EQ(rows_.missing_pages(9), 3U);
  EXPECT_EQ(rows_.missing_pages(2), 0U);
}

TEST_F(Rows, KeepTheirMemoryWhateverTheReason) {
  put(2, BlockPlace::resident);
  std::byte* const slot = rows_.on_device(2);
  rows_.keep_as(2, BlockPlace::cached);
  EXPECT_EQ(rows_.place(2), BlockPlace::cached);
  EXPECT_EQ(rows_.on_device(2), slot);
  EXPECT_EQ(rows_.take_out(2), slot);
  EXPECT_TRUE(rows_.absent(2));
  EXPECT_EQ(rows_.on_device(2), nullptr);
  rows_.spare_slots.push_back(slot);
}

TEST_F(Rows, AreTheCachesBusinessBetweenHeadAndTail) {
  const std::size_t tokens = scenario_.runtime.block_tokens;
  EXPECT_EQ(rows_.cacheable_positions(), (TokenRange{0, 6 * tokens}));
  put(0, BlockPlace::resident);
  put(2, BlockPlace::cached);
  put(5, BlockPlace::resident);
  EXPECT_EQ(rows_.cacheable_positions(), (TokenRange{tokens, 5 * tokens}));
  EXPECT_TRUE(rows_.all_resident(1));
  EXPECT_FALSE(rows_.all_resident(2));
  for (const std::size_t block : {1U, 3U, 4U}) put(block, BlockPlace::resident);
  rows_.keep_as(2, BlockPlace::resident);
  EXPECT_TRUE(rows_.all_resident(6));
  EXPECT_TRUE(rows_.cacheable_positions().empty());
}

TEST_F(Rows, GiveMemoryBackToTheRuntime) {
  put(1, BlockPlace::resident);
  rows_.release(1);
  rows_.release(1);  // an absent block stays as it is
  EXPECT_TRUE(rows_.absent(1));
  EXPECT_TRUE(pool_->trim());
  EXPECT_EQ(pool_->reserved_bytes(), 0U);
}

TEST_F(Rows, ShareTheirPagesUntilOneIsWritten) {
  page_of(rows_, 3)[0] = std::byte{42};
  LayerRows twin = make_rows();
  ASSERT_TRUE(twin.share(rows_).has_value());
  EXPECT_EQ(host_->pages().pages_in_use(), 6U);
  EXPECT_EQ(page_of(twin, 3), page_of(rows_, 3));
  EXPECT_TRUE(rows_.is_shared(3));
  EXPECT_FALSE(rows_.is_shared(6));  // no such page

  ASSERT_TRUE(twin.own(3).has_value());
  EXPECT_NE(page_of(twin, 3), page_of(rows_, 3));
  EXPECT_EQ(page_of(twin, 3)[0], std::byte{42});
  EXPECT_FALSE(rows_.is_shared(3));
  EXPECT_TRUE(rows_.is_shared(2));
  twin.close();
  EXPECT_EQ(host_->pages().pages_in_use(), 6U);
}

TEST_F(Rows, ForgetBlocksBehindTheirEnd) {
  rows_.trim(4);
  EXPECT_EQ(rows_.blocks(), 4U);
  EXPECT_EQ(host_->pages().pages_in_use(), 4U);
  ASSERT_TRUE(rows_.reserve(5).has_value());
  EXPECT_TRUE(rows_.absent(4));
}

TEST_F(Rows, LieOneHeadBehindTheOther) {
  const std::size_t tokens = scenario_.runtime.block_tokens;
  const std::size_t bytes = scenario_.runtime.shape.row_bytes();
  EXPECT_EQ(rows_.row_offset(0, 0), 0U);
  EXPECT_EQ(rows_.row_offset(0, tokens + 3), 3 * bytes);
  EXPECT_EQ(rows_.row_offset(1, 2), (tokens + 2) * bytes);
}

}  // namespace
}  // namespace terrace
