// Whom the reclaimer asks for memory, and in which order.
#include <gtest/gtest.h>

#include "memory/sequence_memory.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

/// A sequence that has device blocks, and can spare them all.
class Holder final : public MemoryHolder {
 public:
  explicit Holder(BlockPool& pool) noexcept : pool_(pool) {}
  ~Holder() override {
    for (std::byte* const block : blocks_) pool_.give(block);
  }

  Status take(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      TERRACE_ASSIGN(std::byte* const block, pool_.take());
      blocks_.push_back(block);
    }
    return {};
  }
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_.size(); }

  [[nodiscard]] bool is_idle() const noexcept override { return idle; }
  bool spill_one() override {
    if (blocks_.empty()) return false;
    pool_.give(blocks_.back());
    blocks_.pop_back();
    return true;
  }
  [[nodiscard]] bool may_send_rows_away() const noexcept override { return false; }
  Result<std::size_t> send_rows_away(const RowsToSend&) override { return 0; }

  bool idle = true;

 private:
  BlockPool& pool_;
  std::vector<std::byte*> blocks_;
};

class MemoryOfOthers : public ::testing::Test {
 protected:
  static constexpr std::size_t block_bytes = 4096;
  static constexpr std::size_t blocks = 8;

  MemoryOfOthers() {
    reclaimer_.enter(mine_);
    reclaimer_.enter(other_);
  }
  ~MemoryOfOthers() override {
    reclaimer_.leave(other_);
    reclaimer_.leave(mine_);
  }

  testing::Scenario scenario_;
  const RuntimePlan plan_ = RuntimePlan::make(scenario_.runtime).value();
  const std::unique_ptr<Backend> backend_ =
      testing::make_scenario_backend({.device_memory_limit = blocks * block_bytes});
  MemoryPools pools_{.blocks = BlockPool::create(*backend_, block_bytes).value(),
                     .cached_row_blocks = BlockPool::create(*backend_, block_bytes).value()};
  const std::unique_ptr<HostTier> host_ = HostTier::open(plan_, *backend_).value();
  Reclaimer reclaimer_{*backend_, pools_, *host_};
  Holder mine_{*pools_.blocks};
  Holder other_{*pools_.blocks};
  const SequenceMemory memory_{pools_, *host_, reclaimer_, mine_};
};

TEST_F(MemoryOfOthers, IsLeftAloneWhileThereIsRoom) {
  ASSERT_TRUE(other_.take(blocks - 1).has_value());
  const Result<std::byte*> block = memory_.take_block();
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(other_.blocks(), blocks - 1);
  pools_.blocks->give(*block);
}

TEST_F(MemoryOfOthers, IsTakenAfterTheSequencesOwn) {
  ASSERT_TRUE(mine_.take(1).has_value());
  ASSERT_TRUE(other_.take(blocks - 1).has_value());
  const std::unique_lock call(mine_.mutex);
  const Result<std::byte*> first = memory_.take_block();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(mine_.blocks(), 0U);
  EXPECT_EQ(other_.blocks(), blocks - 1);
  const Result<std::byte*> second = memory_.take_block();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(other_.blocks(), blocks - 2);
  pools_.blocks->give(*first);
  pools_.blocks->give(*second);
}

TEST_F(MemoryOfOthers, IsTakenFirstOfTheSequenceThatWasUsedLongestAgo) {
  Holder third(*pools_.blocks);
  reclaimer_.enter(third);
  ASSERT_TRUE(other_.take(4).has_value());
  ASSERT_TRUE(third.take(4).has_value());
  reclaimer_.note_use(other_);
  const Result<std::byte*> block = memory_.take_block();
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(other_.blocks(), 4U);
  EXPECT_EQ(third.blocks(), 3U);
  pools_.blocks->give(*block);
  reclaimer_.leave(third);
}

TEST_F(MemoryOfOthers, IsNotTakenInACallOrAStepOfTheirs) {
  ASSERT_TRUE(other_.take(blocks).has_value());
  const std::unique_lock call(mine_.mutex);
  {
    const std::unique_lock busy(other_.mutex);
    const Result<std::byte*> refused = memory_.take_block();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
    EXPECT_EQ(refused.error().lacks, Tier::device);
  }
  other_.idle = false;
  EXPECT_FALSE(memory_.take_block().has_value());
  EXPECT_EQ(other_.blocks(), blocks);
}

TEST_F(MemoryOfOthers, IsTakenAfterMemoryThatNobodyUses) {
  pools_.steps.take_back(std::make_unique<StepMemory>(
      StepMemory{.state = backend_->allocate({.bytes = 4 * block_bytes}).value()}));
  ASSERT_TRUE(other_.take(4).has_value());
  const Result<std::byte*> block = memory_.take_block();
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(other_.blocks(), 4U);
  pools_.blocks->give(*block);
}

}  // namespace
}  // namespace terrace
