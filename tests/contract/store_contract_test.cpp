// Every store keeps to terrace/core/store.hpp.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <vector>

#include "contract/fuzz.hpp"
#include "core/temporary_folder.hpp"
#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "redis/redis_server.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/nvme_store.hpp"
#include "terrace/offload/remote_store.hpp"

namespace terrace {
namespace {

using doubles::FaultStore;
using doubles::MemoryStore;
using offload::NvmeStore;
using offload::RemoteStore;
using offload::StorageFile;

constexpr Duration patience = std::chrono::seconds(60);
using Bytes = std::vector<std::byte>;

struct StoreCase {
  std::string name;
  std::function<std::unique_ptr<Store>(const TemporaryFolder&)> make;
};

class StoreContract : public testing::TestWithParam<StoreCase> {
 protected:
  void SetUp() override {
    store_ = GetParam().make(folder_);
    if (store_ == nullptr) GTEST_SKIP() << "no redis-tools on this machine";
  }

  void run(std::vector<PageRequest>& batch) {
    const auto ticket = store_->submit(batch);
    ASSERT_TRUE(ticket);
    ASSERT_TRUE(ticket->done.wait(patience));
    EXPECT_TRUE(ticket->done.is_set());
  }

  TemporaryFolder folder_;
  std::unique_ptr<Store> store_;
};

PageRequest put(std::uint64_t key, Bytes& from) {
  return {.verb = PageVerb::put,
          .key = {.low = key},
          .data = from.data(),
          .bytes = from.size(),
          .status = {}};
}
PageRequest get(std::uint64_t key, Bytes& to) {
  return {.verb = PageVerb::get,
          .key = {.low = key},
          .data = to.data(),
          .bytes = to.size(),
          .status = {}};
}
PageRequest get_part(std::uint64_t key, std::size_t offset, Bytes& to) {
  PageRequest part = get(key, to);
  part.verb = PageVerb::get_part;
  part.offset = offset;
  return part;
}
PageRequest find(std::uint64_t key) {
  return {.verb = PageVerb::find, .key = {.low = key}, .data = nullptr, .bytes = 0, .status = {}};
}
PageRequest erase(std::uint64_t key) {
  return {.verb = PageVerb::erase, .key = {.low = key}, .data = nullptr, .bytes = 0, .status = {}};
}
Bytes some_bytes(std::size_t count, std::uint64_t seed) {
  Rng rng(seed);
  Bytes bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(rng()); });
  return bytes;
}

TEST_P(StoreContract, GivesBackWhatWasPutInTheSameBatch) {
  Bytes source(100, std::byte{7});
  Bytes target(100);
  std::vector<PageRequest> batch{put(1, source), get(1, target)};
  run(batch);
  EXPECT_TRUE(batch[0].status);
  EXPECT_TRUE(batch[1].status);
  EXPECT_EQ(target, source);
}

TEST_P(StoreContract, APageThatFailsDoesNotHoldUpTheOthersOfItsBatch) {
  Bytes source(100, std::byte{7});
  Bytes target(100);
  Bytes small(50);
  std::vector<PageRequest> batch{put(1, source), get(2, target), get(1, small), erase(9),
                                 get(1, target)};
  run(batch);
  EXPECT_EQ(batch[1].status.error().code, Errc::invalid_argument);
  EXPECT_EQ(batch[2].status.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(batch[2].status.error().message()), testing::HasSubstr("100 bytes"));
  EXPECT_EQ(batch[3].status.error().code, Errc::invalid_argument);
  EXPECT_TRUE(batch[4].status);
  EXPECT_EQ(target, source);
}

TEST_P(StoreContract, RefusesARequestWithoutMemoryAndGoesOn) {
  Bytes source(8192, std::byte{7});
  Bytes target(8192);
  PageRequest put_from_nothing = put(1, source);
  PageRequest get_to_nothing = get(1, target);
  put_from_nothing.data = get_to_nothing.data = nullptr;
  std::vector<PageRequest> batch{put(1, source), put_from_nothing, get_to_nothing, get(1, target)};
  run(batch);
  for (const std::size_t i : {1U, 2U}) {
    ASSERT_FALSE(batch[i].status);
    EXPECT_EQ(batch[i].status.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(batch[i].status.error().message()), testing::HasSubstr("null"));
  }
  EXPECT_TRUE(batch[3].status);
  EXPECT_EQ(target, source);
  EXPECT_EQ(store_->submit({static_cast<PageRequest*>(nullptr), 2}).error().code,
            Errc::invalid_argument);
}

TEST_P(StoreContract, FindsTheSizeOfAPage) {
  Bytes source(100, std::byte{7});
  std::vector<PageRequest> batch{find(1), put(1, source), find(1), erase(1), find(1)};
  run(batch);
  EXPECT_EQ(batch[0].status.error().code, Errc::invalid_argument);
  EXPECT_EQ(batch[0].bytes, 0U);
  EXPECT_TRUE(batch[2].status);
  EXPECT_EQ(batch[2].bytes, 100U);
  EXPECT_FALSE(batch[4].status);
}

/// A get returns the newest page, even if no caller waited for its put.
TEST_P(StoreContract, AnAwaitedRequestComesAfterThoseBeforeItOnItsKey) {
  for (std::size_t version = 1; version < 20; ++version) {
    std::vector<Bytes> sources;
    std::vector<Bytes> targets(10, Bytes(5000));
    std::vector<PageRequest> puts;
    std::vector<PageRequest> gets;
    for (std::uint64_t key = 0; key < 10; ++key) {
      sources.push_back(some_bytes(5000, version * 100 + key));
    }
    for (std::uint64_t key = 0; key < 10; ++key) {
      puts.push_back(put(key, sources[key]));
      gets.push_back(get(key, targets[key]));
    }
    const auto behind = store_->submit(puts, {.priority = Priority::background});
    ASSERT_TRUE(behind);
    run(gets);
    EXPECT_EQ(targets, sources);
    ASSERT_TRUE(behind->done.wait(patience));
  }
}

TEST_P(StoreContract, SaysWhatIsThereAndWhatIsFree) {
  const StoreUsage empty = store_->usage();
  EXPECT_EQ(empty.pages, 0U);
  EXPECT_EQ(empty.page_bytes, 0U);
  EXPECT_EQ(empty.used_bytes, 0U);
  EXPECT_EQ(empty.reserved_bytes, 0U);
  Bytes first(5000);
  Bytes second(100);
  std::vector<PageRequest> batch{put(1, first), put(2, second), put(2, second)};
  run(batch);
  const StoreUsage full = store_->usage();
  EXPECT_EQ(full.pages, 2U);
  EXPECT_EQ(full.pages_max, empty.pages_max);
  EXPECT_EQ(full.page_bytes, 5100U);
  EXPECT_GE(full.used_bytes, 5100U);
  EXPECT_EQ(full.reserved_bytes, 0U);
  EXPECT_EQ(full.used_bytes + full.free_bytes, empty.free_bytes);
  batch = {erase(1), erase(2)};
  run(batch);
  EXPECT_EQ(store_->usage(), empty);
}

/// Batches that are cancelled at once: each of their requests is done, or has changed nothing.
TEST_P(StoreContract, ACancelledRequestHasDoneNothing) {
  const std::uint64_t seed = fuzz_seed(6);
  Rng rng(seed);
  std::map<std::uint64_t, Bytes> model;
  for (std::uint64_t step = 0; step < std::min<std::uint64_t>(fuzz_steps() / 10, 300); ++step) {
    SCOPED_TRACE(replay(seed, step));
    std::vector<Bytes> sources;
    std::vector<PageRequest> batch;
    for (int i = 0; i < 12; ++i) sources.push_back(some_bytes(1 + rng.below(9000), rng()));
    for (Bytes& source : sources) {
      const std::uint64_t key = rng.below(6);
      batch.push_back(rng.below(4) == 0 ? erase(key) : put(key, source));
    }
    const auto ticket = store_->submit(batch);
    ASSERT_TRUE(ticket);
    store_->cancel(*ticket);
    ASSERT_TRUE(ticket->done.wait(patience));
    store_->cancel(*ticket);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::uint64_t key = batch[i].key.low;
      const bool is_known = batch[i].verb == PageVerb::put || model.contains(key);
      if (batch[i].status && batch[i].verb == PageVerb::put) model[key] = sources[i];
      if (batch[i].status && batch[i].verb == PageVerb::erase) {
        ASSERT_EQ(model.erase(key), 1U);
      }
      if (batch[i].status || !is_known) continue;
      ASSERT_EQ(batch[i].status.error().code, Errc::cancelled);
    }
    for (const auto& [key, bytes] : model) {
      Bytes found(bytes.size());
      std::vector<PageRequest> gets{get(key, found)};
      run(gets);
      ASSERT_EQ(found, bytes);
    }
    ASSERT_EQ(store_->usage().pages, model.size());
  }
}

TEST_P(StoreContract, MovesSomeBytesOfAPage) {
  Bytes source = some_bytes(3 * 4096 + 100, 1);
  std::vector<PageRequest> batch{put(1, source)};
  run(batch);
  const std::pair<std::size_t, std::size_t> ranges[] = {
      {0, 1}, {4096, 4096}, {100, 8192}, {12287, 101}, {0, source.size()}, {source.size() - 1, 1}};
  for (const auto& [offset, bytes] : ranges) {
    Bytes target(bytes);
    batch = {get_part(1, offset, target)};
    run(batch);
    ASSERT_TRUE(batch[0].status) << batch[0].status.error().message();
    EXPECT_TRUE(std::ranges::equal(target, std::span(source).subspan(offset, bytes)));
  }
}

TEST_P(StoreContract, RefusesBytesThatAPageDoesNotHave) {
  Bytes source = some_bytes(5000, 1);
  Bytes none;
  Bytes some(1000);
  std::vector<PageRequest> batch{
      put(1, source),          get_part(1, 4001, some), get_part(1, ~std::size_t{0} - 10, some),
      get_part(1, 5000, some), get_part(1, 0, none),    get_part(2, 0, some),
      get_part(1, 4000, some)};
  batch.push_back(batch.back());
  batch.back().data = nullptr;
  run(batch);
  for (const std::size_t i : {1U, 2U, 3U, 4U, 5U, 7U}) {
    ASSERT_FALSE(batch[i].status) << i;
    EXPECT_EQ(batch[i].status.error().code, Errc::invalid_argument);
  }
  EXPECT_THAT(std::string(batch[1].status.error().message()), testing::HasSubstr("1000 at 4001"));
  EXPECT_TRUE(batch[6].status);
  EXPECT_TRUE(std::ranges::equal(some, std::span(source).subspan(4000)));
}

TEST_P(StoreContract, CancelsNoBatchThatItNeverGave) {
  store_->cancel({.number = 77});
  Bytes source(100, std::byte{7});
  std::vector<PageRequest> batch{put(1, source)};
  run(batch);
  EXPECT_TRUE(batch[0].status);
}

TEST_P(StoreContract, AnEmptyBatchIsDone) {
  const auto ticket = store_->submit({});
  ASSERT_TRUE(ticket);
  EXPECT_TRUE(ticket->done.wait(patience));
}

/// Once, and when each request has its bytes and its status, well or not.
TEST_P(StoreContract, TellsWhoListensThatABatchIsDone) {
  Bytes source = some_bytes(5000, 2);
  for (int round = 0; round < 50; ++round) {
    Bytes target(5000);
    std::vector<PageRequest> batch{put(1, source), get(1, target), get(2, target)};
    const auto ticket = store_->submit(batch);
    ASSERT_TRUE(ticket);
    std::atomic<int> heard{0};
    std::atomic<bool> was_whole{false};
    ticket->done.then([&] {
      was_whole = batch[0].status && batch[1].status && !batch[2].status && target == source;
      ++heard;
      heard.notify_all();
    });
    heard.wait(0);
    ASSERT_EQ(heard.load(), 1);
    ASSERT_TRUE(was_whole.load());
    ASSERT_TRUE(ticket->done.is_set());
  }
}

TEST_P(StoreContract, BehavesAsAMapUnderRandomBatches) {
  const std::uint64_t seed = fuzz_seed(4);
  const std::uint64_t steps = std::min<std::uint64_t>(fuzz_steps(), 3000);
  Rng rng(seed);
  std::map<std::uint64_t, Bytes> model;
  for (std::uint64_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(replay(seed, step));
    const std::uint64_t key = rng.below(50);
    const bool known = model.contains(key);
    Bytes bytes = some_bytes(1 + rng.below(300), rng());
    switch (rng.below(5)) {
      case 4: {
        const std::size_t size = known ? model[key].size() : 1;
        const std::size_t offset = rng.below(size + 2);
        const std::size_t count = 1 + rng.below(size + 2);
        bytes.resize(count);
        std::vector<PageRequest> batch{get_part(key, offset, bytes)};
        run(batch);
        ASSERT_EQ(batch[0].status.has_value(), known && offset + count <= size);
        if (batch[0].status) {
          ASSERT_TRUE(std::ranges::equal(bytes, std::span(model[key]).subspan(offset, count)));
        }
        break;
      }
      case 3: {
        std::vector<PageRequest> batch{find(key)};
        run(batch);
        ASSERT_EQ(batch[0].status.has_value(), known);
        ASSERT_EQ(batch[0].bytes, known ? model[key].size() : 0);
        break;
      }
      case 0: {
        std::vector<PageRequest> batch{put(key, bytes)};
        run(batch);
        ASSERT_TRUE(batch[0].status);
        model[key] = bytes;
        break;
      }
      case 1: {
        if (known) bytes.resize(model[key].size());
        std::vector<PageRequest> batch{get(key, bytes)};
        run(batch);
        ASSERT_EQ(batch[0].status.has_value(), known);
        if (known) {
          ASSERT_EQ(bytes, model[key]);
        }
        break;
      }
      default: {
        std::vector<PageRequest> batch{erase(key)};
        run(batch);
        ASSERT_EQ(batch[0].status.has_value(), known);
        model.erase(key);
      }
    }
  }
}

std::unique_ptr<Store> make_memory_store(const TemporaryFolder& /*folder*/) {
  return std::make_unique<MemoryStore>();
}
std::unique_ptr<Store> make_fault_store(const TemporaryFolder& folder) {
  return std::make_unique<FaultStore>(make_memory_store(folder));
}
auto make_nvme_store(offload::FileEngine engine) {
  return [engine](const TemporaryFolder& folder) -> std::unique_ptr<Store> {
    return NvmeStore::open({.file = {.path = folder / "pages", .bytes = 4 << 20},
                            .pages_max = 200,
                            .part_bytes = StorageFile::alignment,
                            .queue = {.engine = engine, .depth = 4}})
        .value();
  };
}
/// All cases share a server, under names of their own.
std::unique_ptr<Store> make_remote_store(const TemporaryFolder& folder) {
  if (!redis::is_installed()) return nullptr;
  static const redis::RedisServer server;
  return RemoteStore::open({.server = {.addresses = {server.address()}, .user = {}, .password = {}},
                            .key_prefix = folder.path().string() + ":",
                            .deadline = patience,
                            .connect_timeout = patience})
      .value();
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreContract,
    testing::Values(StoreCase{"Memory", &make_memory_store},
                    StoreCase{"FaultWithoutFaults", &make_fault_store},
                    StoreCase{"Nvme", make_nvme_store(offload::FileEngine::best)},
                    StoreCase{"NvmeByThreads", make_nvme_store(offload::FileEngine::threads)},
                    StoreCase{"Remote", &make_remote_store}),
    [](const auto& each) { return each.param.name; });

TEST(MemoryStore, ReportsADamagedPageAsCorruptAndOnlyThat) {
  MemoryStore store;
  Bytes source(100, std::byte{7});
  Bytes target(100);
  std::vector<PageRequest> batch{put(1, source), put(2, source)};
  ASSERT_TRUE(store.submit(batch));
  ASSERT_TRUE(store.damage({.low = 1}));
  batch = {get(1, target), get(2, target)};
  ASSERT_TRUE(store.submit(batch));
  EXPECT_EQ(batch[0].status.error().code, Errc::corrupt);
  EXPECT_TRUE(batch[1].status);
}

TEST(MemoryStore, ReadsTheOtherPartsOfADamagedPage) {
  MemoryStore store;
  Bytes source = some_bytes(300, 3);
  Bytes target(64);
  std::vector<PageRequest> batch{put(1, source)};
  ASSERT_TRUE(store.submit(batch));
  ASSERT_TRUE(store.damage({.low = 1}, 70));
  EXPECT_FALSE(store.damage({.low = 1}, 300));
  batch = {get_part(1, 0, target), get_part(1, 64, target), get_part(1, 128, target)};
  ASSERT_TRUE(store.submit(batch));
  EXPECT_TRUE(batch[0].status);
  EXPECT_EQ(batch[1].status.error().code, Errc::corrupt);
  EXPECT_TRUE(batch[2].status);
  EXPECT_TRUE(std::ranges::equal(target, std::span(source).subspan(128, 64)));
}

TEST(MemoryStore, RefusesAPageBeyondItsCapacityAndCountsExactly) {
  MemoryStore store({.capacity_bytes = 150});
  Bytes hundred(100);
  Bytes fifty(50);
  std::vector<PageRequest> batch{put(1, hundred), put(2, hundred), put(2, fifty), put(1, fifty)};
  ASSERT_TRUE(store.submit(batch));
  EXPECT_EQ(batch[1].status.error().code, Errc::out_of_memory);
  EXPECT_TRUE(batch[2].status);
  EXPECT_TRUE(batch[3].status);
  EXPECT_EQ(store.usage().used_bytes, 100U);
  EXPECT_EQ(store.usage().free_bytes, 50U);
  EXPECT_EQ(store.usage().pages, 2U);
}

TEST(FaultStore, FailsTheNthRequestOfItsVerb) {
  FaultStore store(std::make_unique<MemoryStore>());
  store.arm({.verb = PageVerb::get, .nth = 2, .error = Errc::io_error});
  Bytes bytes(10, std::byte{1});
  std::vector<PageRequest> batch{put(1, bytes), get(1, bytes), get(1, bytes), get(1, bytes)};
  const auto ticket = store.submit(batch);
  ASSERT_TRUE(ticket->done.wait(patience));
  EXPECT_TRUE(batch[1].status);
  EXPECT_EQ(batch[2].status.error().code, Errc::io_error);
  EXPECT_TRUE(batch[3].status);
}

TEST(FaultStore, AWaitThatIsTooShortChangesNothingAndACancelledBatchMovesNoByte) {
  FaultStore store(std::make_unique<MemoryStore>());
  Bytes source(10, std::byte{1});
  Bytes target(10);
  std::vector<PageRequest> batch{put(1, source)};
  ASSERT_TRUE(store.submit(batch));
  store.arm({.holds = true});
  batch = {get(1, target)};
  const auto ticket = store.submit(batch);
  EXPECT_EQ(ticket->done.wait(std::chrono::milliseconds(1)).error().code, Errc::not_ready);
  EXPECT_FALSE(ticket->done.is_set());
  store.cancel(*ticket);
  EXPECT_TRUE(ticket->done.is_set());
  EXPECT_EQ(batch[0].status.error().code, Errc::cancelled);
  EXPECT_EQ(target, Bytes(10));
}

TEST(FaultStore, CarriesOutWhatIsHeldOneBatchAfterTheOther) {
  FaultStore store(std::make_unique<MemoryStore>());
  store.arm({.holds = true});
  Bytes source(10, std::byte{1});
  Bytes target(10);
  std::vector<PageRequest> puts{put(1, source)};
  std::vector<PageRequest> gets{get(1, target)};
  const auto first = store.submit(puts);
  const auto second = store.submit(gets);
  EXPECT_TRUE(store.release());
  EXPECT_TRUE(first->done.is_set());
  EXPECT_FALSE(second->done.is_set());
  EXPECT_TRUE(store.release());
  EXPECT_TRUE(second->done.is_set());
  EXPECT_EQ(target, source);
  EXPECT_FALSE(store.release());
}

TEST(FaultStore, SaysOfEachRequestThatTheStoreBelowTakesNone) {
  auto below = std::make_unique<FaultStore>(std::make_unique<MemoryStore>());
  below->arm({.batches_max = 0});
  FaultStore store(std::move(below));
  Bytes bytes(10, std::byte{1});
  std::vector<PageRequest> batch{put(1, bytes), get(1, bytes)};
  const auto ticket = store.submit(batch);
  ASSERT_TRUE(ticket);
  EXPECT_TRUE(ticket->done.wait(patience));
  for (const PageRequest& request : batch) {
    ASSERT_FALSE(request.status);
    EXPECT_EQ(request.status.error().code, Errc::out_of_memory);
  }
}

TEST(FaultStore, RefusesMoreBatchesThanMayBeUnderWay) {
  FaultStore store(std::make_unique<MemoryStore>());
  store.arm({.holds = true, .batches_max = 1});
  std::vector<PageRequest> batch{erase(1)};
  ASSERT_TRUE(store.submit(batch));
  EXPECT_EQ(store.submit(batch).error().code, Errc::out_of_memory);
}

}  // namespace
}  // namespace terrace
