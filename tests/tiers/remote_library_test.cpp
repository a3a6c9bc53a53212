// Libraries that share a lower store: what one publishes, the others find.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "made_directory.hpp"
#include "namespaces.hpp"
#include "terrace/tiers/chunk_chain.hpp"
#include "terrace/tiers/chunk_library.hpp"

namespace terrace::tiers {
namespace {

using doubles::FaultStore;
using doubles::MemoryStore;

constexpr Duration long_enough = std::chrono::minutes(2);
constexpr std::uint32_t tokens = 32;
constexpr std::size_t part_bytes = 300;
constexpr PartName rows{.kind = PartKind::rows, .layer = 3};
constexpr PartName state{.kind = PartKind::state};
constexpr std::size_t chunk_bytes = part_bytes + 1 + 52 + 2 * 28;  ///< in a store of memory

std::vector<PartBytes> parts_of(const ChunkKey& key) {
  return {{rows, std::vector<std::byte>(part_bytes, std::byte(key.high))},
          {state, std::vector<std::byte>(1, std::byte(key.low))}};
}

class RemoteLibrary : public ::testing::Test {
 protected:
  /// Opens a library with an upper store of its own, and the lower store that all have.
  std::shared_ptr<ChunkLibrary> open(std::size_t chunks = 1000) {
    const auto upper = std::make_shared<FaultStore>(std::make_unique<MemoryStore>(
        doubles::MemoryStoreOptions{.capacity_bytes = chunks * chunk_bytes}));
    remote_ =
        RemoteChunks::create({.store = lower_, .deadline = deadline_, .write_deadline = deadline_})
            .value();
    return ChunkLibrary::share({.store = upper, .deadline = long_enough, .remote = remote_})
        .value();
  }
  FindRequest request(std::span<const ChunkKey> keys) {
    return {.root = some_root, .keys = keys, .now = at_seconds(++now_)};
  }
  LookUp find(ChunkLibrary& library, std::span<const ChunkKey> keys) {
    return library.find_run(request(keys), keys.size() * tokens);
  }
  void publish(ChunkLibrary& library, std::span<const ChunkKey> keys) {
    ChunkLease lease;
    for (const ChunkKey& key : keys) {
      const auto published = library.publish(
          {.root = some_root, .key = key, .tokens = tokens, .now = at_seconds(++now_)},
          parts_of(key), lease);
      ASSERT_TRUE(published) << published.error().message();
    }
  }
  /// Publishes in a library that goes, so that the lower store has the chunks.
  void publish_below(std::span<const ChunkKey> keys) {
    const auto library = open();
    publish(*library, keys);
    ASSERT_TRUE(remote_->wait_for_writes(long_enough));
    ASSERT_EQ(remote_->counters().left_out, 0U);
  }

  std::int64_t now_ = 0;
  Duration deadline_ = long_enough;
  MemoryStore* memory_ = new MemoryStore();  // of the store below
  std::shared_ptr<FaultStore> lower_ =
      std::make_shared<FaultStore>(std::unique_ptr<Store>(memory_));
  std::shared_ptr<RemoteChunks> remote_;
};

TEST_F(RemoteLibrary, FindsWhatAnotherOnePublished) {
  const std::vector<ChunkKey> keys = some_keys(4);
  publish_below(keys);
  const auto library = open();
  const LookUp found = find(*library, keys);
  EXPECT_EQ(found.outcome, LookUpOutcome::hit_remote);
  ASSERT_EQ(found.run.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(found.run[i].tokens(), tokens);
    EXPECT_EQ(library->read(found.run[i], *found.run[i].find(rows)).value(),
              parts_of(keys[i])[0].bytes);
  }
  lower_->arm({.holds = true});
  EXPECT_EQ(find(*library, keys).outcome, LookUpOutcome::hit_nvme) << "they are here now";
  const ChunkCounters counters = library->counters();
  EXPECT_EQ(counters.look_ups[LookUpOutcome::hit_remote], 1U);
  EXPECT_EQ(counters.look_ups[LookUpOutcome::hit_nvme], 1U);
  EXPECT_EQ(counters.look_ups.look_ups, 2U);
  EXPECT_EQ(counters.tokens_found, 8 * tokens);
  EXPECT_EQ(library->remote_counters().read, 4U);
  EXPECT_EQ(library->remote_counters().written, 0U) << "they do not go back";
}

TEST_F(RemoteLibrary, BringsNoMoreOnceAChunkTakesLongerThanItsTokens) {
  const std::vector<ChunkKey> keys = some_keys(4);
  publish_below(keys);
  const auto library = open();
  FindRequest quick = request(keys);
  quick.token_seconds = 1e-12;
  const LookUp found = library->find_run(quick, keys.size() * tokens);
  EXPECT_EQ(found.outcome, LookUpOutcome::partial);
  EXPECT_EQ(found.run.size(), 1U);
  quick.token_seconds = 1e6;
  EXPECT_EQ(library->find_run(quick, keys.size() * tokens).run.size(), 4U);
}

TEST_F(RemoteLibrary, GoesOnWhereItsOwnChunksEnd) {
  const std::vector<ChunkKey> keys = some_keys(5);
  publish_below(std::span(keys).first(4));
  const auto library = open();
  publish(*library, std::span(keys).first(2));
  const LookUp found = find(*library, keys);
  EXPECT_EQ(found.outcome, LookUpOutcome::partial);
  EXPECT_EQ(found.run.size(), 4U);
  EXPECT_EQ(library->remote_counters().read, 2U);
}

TEST_F(RemoteLibrary, GetsBackWhatItEvicted) {
  const std::vector<ChunkKey> keys = some_keys(3);
  const auto library = open();
  publish(*library, keys);
  ASSERT_TRUE(remote_->wait_for_writes(long_enough));
  ASSERT_GT(library->make_room(3 * part_bytes), 0U);
  EXPECT_EQ(find(*library, keys).outcome, LookUpOutcome::hit_remote);
}

/// Keys say whose chunks they are: of another salt, other keys are asked for.
TEST_F(RemoteLibrary, FindsNothingOfAnotherSalt) {
  const std::vector<TokenId> prefix(16, TokenId{7});
  const auto keys_of = [&](const char* salt) {
    Namespace names = some_namespace();
    names.salt = TenantSalt(salt);
    auto chain =
        ChunkChain::create({.root = names.digest().value(), .chunk_tokens = names.chunk_tokens})
            .value();
    const auto keys = chain.append(prefix).value();
    return std::vector<ChunkKey>(keys.begin(), keys.end());
  };
  publish_below(keys_of("mine"));
  const auto library = open();
  EXPECT_EQ(find(*library, keys_of("yours")).outcome, LookUpOutcome::miss_never_stored);
  EXPECT_EQ(find(*library, keys_of("mine")).outcome, LookUpOutcome::hit_remote);
}

TEST_F(RemoteLibrary, DropsADamagedChunkAndFindsThoseBeforeIt) {
  const std::vector<ChunkKey> keys = some_keys(3);
  for (const PageKey damaged : {page_key(keys[1], rows), manifest_page_key(keys[1])}) {
    publish_below(keys);
    const std::uint64_t pages = memory_->usage().pages;
    ASSERT_TRUE(memory_->damage(damaged));
    const auto library = open();
    const LookUp found = find(*library, keys);
    EXPECT_EQ(found.outcome, LookUpOutcome::partial);
    EXPECT_EQ(found.run.size(), 1U);
    EXPECT_LT(memory_->usage().pages, pages);
    EXPECT_EQ(remote_->counters().dropped, 1U);
    EXPECT_EQ(find(*library, {&keys[1], 1}).outcome, LookUpOutcome::miss_corrupt);
    EXPECT_EQ(remote_->counters().dropped, 1U) << "it is no failure a second time";
  }
}

TEST_F(RemoteLibrary, DropsAChunkThatHasLostAPart) {
  const std::vector<ChunkKey> keys = some_keys(2);
  publish_below(keys);
  offload::StoreCalls calls(lower_, long_enough);
  const PageKey lost = page_key(keys[0], rows);
  ASSERT_TRUE(calls.erase({&lost, 1}));
  const auto library = open();
  EXPECT_EQ(find(*library, keys).outcome, LookUpOutcome::miss_never_stored);
  EXPECT_EQ(memory_->usage().pages, 3U) << "the second chunk's";
}

TEST_F(RemoteLibrary, IsLateWhereTheLowerStoreSaysNothing) {
  const std::vector<ChunkKey> keys = some_keys(2);
  publish_below(keys);
  deadline_ = std::chrono::milliseconds(20);
  const auto library = open();
  publish(*library, some_keys(1, 50));
  ASSERT_TRUE(remote_->wait_for_writes(long_enough));
  lower_->arm({.holds = true});
  EXPECT_EQ(find(*library, keys).outcome, LookUpOutcome::miss_late);
  EXPECT_EQ(find(*library, some_keys(1, 50)).outcome, LookUpOutcome::hit_nvme);
  while (lower_->release()) continue;
  lower_->arm({});
  EXPECT_EQ(find(*library, keys).outcome, LookUpOutcome::hit_remote);
}

TEST_F(RemoteLibrary, MissesWhereTheLowerStoreFails) {
  const std::vector<ChunkKey> keys = some_keys(2);
  publish_below(keys);
  const auto library = open();
  for (const PageVerb verb : {PageVerb::find, PageVerb::get}) {
    lower_->arm({.verb = verb, .probability = 1});
    EXPECT_EQ(find(*library, keys).outcome, LookUpOutcome::miss_late);
  }
  lower_->arm({});
  EXPECT_EQ(remote_->counters().dropped, 0U);
  EXPECT_EQ(find(*library, keys).outcome, LookUpOutcome::hit_remote);
}

TEST_F(RemoteLibrary, NeverWaitsForTheLowerStoreToPublish) {
  const std::vector<ChunkKey> keys = some_keys(20);
  deadline_ = std::chrono::milliseconds(20);
  const auto library = open();
  lower_->arm({.holds = true});  // for ever
  publish(*library, keys);
  EXPECT_EQ(find(*library, keys).outcome, LookUpOutcome::hit_nvme);
  ASSERT_TRUE(remote_->wait_for_writes(long_enough));
  EXPECT_EQ(remote_->counters().left_out, 20U);
}

TEST_F(RemoteLibrary, LeavesOutWhatFindsNoRoomToWait) {
  lower_->arm({.holds = true});
  remote_ = RemoteChunks::create(
                {.store = lower_, .deadline = deadline_, .bytes_behind_max = 2 * (part_bytes + 1)})
                .value();
  const auto library =
      ChunkLibrary::share(
          {.store = std::make_shared<MemoryStore>(), .deadline = long_enough, .remote = remote_})
          .value();
  publish(*library, some_keys(5));
  EXPECT_EQ(remote_->counters().left_out, 3U);
  lower_->arm({});
  while (lower_->release()) continue;
  while (!remote_->wait_for_writes(std::chrono::milliseconds(1))) {
    while (lower_->release()) continue;
  }
  EXPECT_EQ(remote_->counters().written, 2U);
}

TEST_F(RemoteLibrary, SaysThatItHasNoRoomForWhatTheLowerStoreHas) {
  const std::vector<ChunkKey> keys = some_keys(3);
  publish_below(keys);
  const auto library = open(1);
  const LookUp found = find(*library, keys);
  EXPECT_EQ(found.outcome, LookUpOutcome::partial);
  EXPECT_EQ(found.run.size(), 1U);
  EXPECT_EQ(find(*library, std::span(keys).subspan(1)).outcome, LookUpOutcome::miss_no_room);
}

TEST_F(RemoteLibrary, RefusesAChunkThatNamesMoreBytesThanThereIsRoomFor) {
  const ChunkKey key = some_keys(1).front();
  const Part vast{.name = rows, .bytes = std::uint64_t{1} << 62, .checksum = 1};
  offload::StoreCalls calls(lower_, long_enough);
  ASSERT_TRUE(calls.write({{.key = manifest_page_key(key),
                            .bytes = Manifest::create(key, tokens, {vast}).value().write()}}));
  const auto library = open();
  EXPECT_EQ(find(*library, {&key, 1}).outcome, LookUpOutcome::miss_corrupt);
  EXPECT_EQ(memory_->usage().pages, 0U);
}

TEST_F(RemoteLibrary, BringsTheLastOfSomeChunks) {
  const std::vector<ChunkKey> keys = some_keys(4);
  publish_below(std::span(keys).first(3));
  const auto library = open();
  EXPECT_EQ(library->find_last(request(keys)).value()->manifest.chunk(), keys[2]);
  EXPECT_EQ(library->remote_counters().read, 1U);
  EXPECT_TRUE(library->find_last(request(std::span(keys).first(3))).value().has_value());
  EXPECT_EQ(library->remote_counters().read, 1U) << "it is here";
}

TEST_F(RemoteLibrary, TakesALowerStoreThatComesLater) {
  const std::vector<ChunkKey> keys = some_keys(2);
  publish_below(keys);
  const auto upper = std::make_shared<MemoryStore>();
  const auto library = ChunkLibrary::share({.store = upper, .deadline = long_enough}).value();
  EXPECT_EQ(find(*library, keys).outcome, LookUpOutcome::miss_never_stored);
  const auto remote = RemoteChunks::create({.store = lower_, .deadline = deadline_}).value();
  EXPECT_EQ(
      ChunkLibrary::share({.store = upper, .deadline = long_enough, .remote = remote}).value(),
      library);
  EXPECT_EQ(find(*library, keys).outcome, LookUpOutcome::hit_remote);
}

TEST(RemoteChunks, NeedAStoreAndADeadline) {
  EXPECT_FALSE(RemoteChunks::create({.deadline = long_enough}));
  EXPECT_FALSE(RemoteChunks::create({.store = std::make_shared<MemoryStore>()}));
}

}  // namespace
}  // namespace terrace::tiers
