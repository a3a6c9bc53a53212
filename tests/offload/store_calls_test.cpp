#include "terrace/offload/store_calls.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <vector>

#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"

namespace terrace::offload {
namespace {

using ::testing::ElementsAre;

constexpr Duration deadline = std::chrono::milliseconds{20};
constexpr PageKey first{.high = 5, .low = 1};
constexpr PageKey second{.high = 5, .low = 2};

std::vector<std::byte> bytes_of(std::size_t count, int value) {
  return std::vector<std::byte>(count, std::byte(value));
}

class Calls : public ::testing::Test {
 protected:
  std::shared_ptr<doubles::FaultStore> store_ =
      std::make_shared<doubles::FaultStore>(std::make_unique<doubles::MemoryStore>());
  StoreCalls calls_{store_, deadline};
};

TEST_F(Calls, ReadWhatTheyHaveWritten) {
  ASSERT_TRUE(calls_.write({{first, bytes_of(100, 1)}, {second, bytes_of(7, 2)}}));
  EXPECT_EQ(calls_.read(first).value(), bytes_of(100, 1));
  EXPECT_EQ(calls_.read(second).value(), bytes_of(7, 2));
}

TEST_F(Calls, FindPagesAndThoseThatAreNotThere) {
  ASSERT_TRUE(calls_.write({{first, bytes_of(100, 1)}}));
  const std::vector<PageKey> keys{second, first};
  EXPECT_THAT(calls_.sizes_of(keys).value(), ElementsAre(0, 100));
  EXPECT_EQ(calls_.read(second).error().code, Errc::invalid_argument);
}

TEST_F(Calls, EraseWhatIsThere) {
  ASSERT_TRUE(calls_.write({{first, bytes_of(100, 1)}}));
  const std::vector<PageKey> keys{second, first};
  EXPECT_TRUE(calls_.erase(keys));
  EXPECT_THAT(calls_.sizes_of(keys).value(), ElementsAre(0, 0));
}

TEST_F(Calls, SayWhatFailed) {
  store_->arm({.verb = PageVerb::put, .nth = 2});
  const Status written = calls_.write({{first, bytes_of(8, 1)}, {second, bytes_of(8, 2)}});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Errc::io_error);
  store_->arm({.verb = PageVerb::get, .nth = 1, .error = Errc::corrupt});
  EXPECT_EQ(calls_.read(first).error().code, Errc::corrupt);
}

TEST_F(Calls, EndInTimeWhateverTheStoreDoes) {
  store_->arm({.holds = true});
  const auto read = calls_.read(first);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::cancelled);
}

/// A store whose device does not answer until it is told to.
class StuckStore final : public Store {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "stuck"; }
  void cancel(const StoreTicket& /*ticket*/) noexcept override {}
  [[nodiscard]] StoreUsage usage() const override { return {}; }
  void answer() { ticket_.done.set(); }

 private:
  Result<StoreTicket> do_submit(std::span<PageRequest> /*batch*/,
                                const BatchOptions& /*options*/) override {
    ticket_ = StoreTicket{.number = ticket_.number + 1};
    return ticket_;
  }

  StoreTicket ticket_;
};

TEST(CallsOfAStuckStore, KeepTheMemoryOfALateBatch) {
  const auto store = std::make_shared<StuckStore>();
  StoreCalls calls(store, deadline);
  const auto memory = std::make_shared<std::vector<std::byte>>(64);
  StoreBatch batch{.requests = {{.verb = PageVerb::put,
                                 .key = first,
                                 .data = memory->data(),
                                 .bytes = memory->size()}},
                   .memory = memory};
  const Status late = calls.carry_out(batch);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::not_ready);
  EXPECT_TRUE(batch.requests.empty()) << "the batch is no longer the caller's";
  EXPECT_EQ(memory.use_count(), 2);
  store->answer();
  static_cast<void>(calls.erase({&first, 1}));
  EXPECT_EQ(memory.use_count(), 1) << "the store is done with it";
  store->answer();
}

}  // namespace
}  // namespace terrace::offload
