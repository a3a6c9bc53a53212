#include "terrace/tiers/chunk_library.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "made_directory.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::tiers {
namespace {

constexpr Duration deadline = std::chrono::seconds{10};
constexpr std::uint32_t tokens = 32;
constexpr std::size_t part_bytes = 300;
constexpr PartName rows{.kind = PartKind::rows, .layer = 3};
constexpr PartName state{.kind = PartKind::state};
constexpr std::size_t manifest_bytes = 52 + 2 * 28;
constexpr std::size_t chunk_bytes = part_bytes + 1 + manifest_bytes;  ///< in a store of memory

std::vector<PartBytes> parts_of(const ChunkKey& key) {
  return {{rows, std::vector<std::byte>(part_bytes, std::byte(key.high))},
          {state, std::vector<std::byte>(1, std::byte(key.low))}};
}

class MadeLibrary : public ::testing::Test {
 protected:
  explicit MadeLibrary(std::size_t chunks = 1000, Duration patience = deadline)
      : store_(std::make_shared<doubles::FaultStore>(std::make_unique<doubles::MemoryStore>(
            doubles::MemoryStoreOptions{.capacity_bytes = chunks * chunk_bytes}))),
        library_(share({.store = store_, .deadline = patience})) {}

  static std::shared_ptr<ChunkLibrary> share(const ChunkLibraryOptions& options) {
    return ChunkLibrary::share(options).value();
  }
  FindRequest request(std::span<const ChunkKey> keys, TenantId tenant = {}) {
    return {.root = some_root, .tenant = tenant, .keys = keys, .now = at_seconds(++now_)};
  }
  LookUp find(std::span<const ChunkKey> keys, TenantId tenant = {}) {
    return library_->find_run(request(keys, tenant), keys.size() * tokens);
  }
  /// Returns how a look-up ended, and keeps no lease.
  LookUpOutcome outcome_of(std::span<const ChunkKey> keys) { return find(keys).outcome; }
  Result<Published> publish(const ChunkKey& key, ChunkLease& lease) {
    return library_->publish(
        {.root = some_root, .key = key, .tokens = tokens, .now = at_seconds(++now_)}, parts_of(key),
        lease);
  }
  /// Publishes a prefix as a sequence does.
  void publish(std::span<const ChunkKey> keys) {
    ChunkLease lease = library_->lease(request(keys)).value();
    for (const ChunkKey& key : keys) {
      const auto published = publish(key, lease);
      ASSERT_TRUE(published.has_value()) << published.error().message();
    }
    library_->touch(request(keys));
  }
  void expect_sum() const {
    const LookUpCounters ended = library_->counters().look_ups;
    std::uint64_t sum = 0;
    for (const std::uint64_t count : ended.ended) sum += count;
    EXPECT_EQ(sum, ended.look_ups);
  }
  /// Erases a page behind the library's back.
  static void lose(const std::shared_ptr<Store>& store, const PageKey& page) {
    offload::StoreCalls calls(store, deadline);
    ASSERT_TRUE(calls.erase({&page, 1}));
  }

  std::int64_t now_ = 0;
  std::shared_ptr<doubles::FaultStore> store_;
  std::shared_ptr<ChunkLibrary> library_;
};

using Library = MadeLibrary;

TEST_F(Library, CountsEachLookUpAsItEnded) {
  const std::vector<ChunkKey> keys = some_keys(4);
  publish(std::span(keys).first(3));
  EXPECT_EQ(outcome_of(std::span(keys).first(3)), LookUpOutcome::hit_nvme);
  const LookUp partial = find(keys);
  EXPECT_EQ(partial.outcome, LookUpOutcome::partial);
  EXPECT_EQ(partial.run.size(), 3U);
  EXPECT_EQ(outcome_of(some_keys(2, 50)), LookUpOutcome::miss_never_stored);
  EXPECT_EQ(outcome_of({}), LookUpOutcome::miss_never_stored);
  const ChunkCounters counters = library_->counters();
  EXPECT_EQ(counters.look_ups.look_ups, 4U);
  EXPECT_EQ(counters.look_ups[LookUpOutcome::miss_never_stored], 2U);
  EXPECT_EQ(counters.tokens_asked, (3 + 4 + 2) * tokens);
  EXPECT_EQ(counters.tokens_found, (3 + 3) * tokens);
  EXPECT_EQ(counters.chunks.resident, 3 * (part_bytes + 1));
  expect_sum();
}

TEST_F(Library, ReadsWhatWasPublished) {
  const std::vector<ChunkKey> keys = some_keys(2);
  publish(keys);
  const LookUp found = find(keys);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(library_->read(found.run[i], *found.run[i].find(rows)).value(),
              parts_of(keys[i])[0].bytes);
  }
}

TEST_F(Library, WritesAChunkOnce) {
  const ChunkKey key = some_keys(1).front();
  ChunkLease lease;
  EXPECT_EQ(publish(key, lease).value(), Published::written);
  store_->arm({.verb = PageVerb::put, .nth = 1});
  EXPECT_EQ(publish(key, lease).value(), Published::was_there);
  EXPECT_EQ(lease.chunks().size(), 1U);
}

TEST_F(Library, IsOneForEachStore) {
  EXPECT_EQ(share({.store = store_, .deadline = deadline}), library_);
  EXPECT_EQ(ChunkLibrary::of(*store_), library_);
  EXPECT_EQ(ChunkLibrary::of(doubles::MemoryStore{}), nullptr);
  const std::weak_ptr<ChunkLibrary> gone = library_;
  library_.reset();
  EXPECT_TRUE(gone.expired());
  EXPECT_EQ(ChunkLibrary::of(*store_), nullptr);
  EXPECT_FALSE(ChunkLibrary::share({}).has_value());
}

TEST_F(Library, DoesNotAskTheStoreForManifestsThatAreKnown) {
  const std::vector<ChunkKey> keys = some_keys(3);
  publish(keys);
  const std::vector<Manifest> read = find(keys).run;
  const auto known = [&](const ChunkKey& key) -> const Manifest* {
    return key == keys[2] ? nullptr : &read[key == keys[1] ? 1 : 0];
  };
  store_->arm({.verb = PageVerb::get, .nth = 2});  // one is asked for
  const LookUp found = library_->find_run(request(keys), 3 * tokens, known);
  EXPECT_EQ(found.outcome, LookUpOutcome::hit_nvme);
  ASSERT_EQ(found.run.size(), 3U);
  EXPECT_EQ(found.run[2].chunk(), keys[2]);
  EXPECT_EQ(library_->counters().tokens_found, 6 * tokens);
  expect_sum();
}

TEST_F(Library, MakesRoomOfOneTenantsChunksAlone) {
  const std::vector<ChunkKey> keys = some_keys(4);
  ChunkLease lease;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(library_->publish({.root = some_root,
                                   .tenant = TenantId(i % 2),
                                   .key = keys[i],
                                   .tokens = tokens,
                                   .now = at_seconds(++now_)},
                                  parts_of(keys[i]), lease));
  }
  lease = {};
  EXPECT_EQ(library_->gauges(TenantId{1}).resident, 2 * (part_bytes + 1));
  EXPECT_EQ(library_->make_room(SIZE_MAX, TenantId{1}), 2 * (part_bytes + 1));
  EXPECT_EQ(library_->make_room(1, TenantId{1}), 0U);
  EXPECT_EQ(library_->gauges(TenantId{1}).resident, 0U);
  EXPECT_EQ(library_->counters().chunks.copies, 2U);
}

TEST_F(Library, AsksAStoreForChunksThatItDoesNotKnow) {
  const std::vector<ChunkKey> keys = some_keys(3);
  publish(keys);
  library_.reset();
  library_ = share({.store = store_, .deadline = deadline});
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::hit_nvme);
  EXPECT_EQ(library_->counters().chunks.copies, 3U);
  EXPECT_EQ(library_->make_room(1), part_bytes + 1) << "it may evict them, too";
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::partial);
}

TEST_F(Library, SaysOfADamagedChunkThatItIsOneAndErasesIt) {
  const std::vector<ChunkKey> keys = some_keys(3);
  for (const bool known : {true, false}) {
    publish(keys);
    offload::StoreCalls calls(store_, deadline);
    ASSERT_TRUE(calls.write({{manifest_page_key(keys[0]), std::vector<std::byte>(72)}}));
    if (!known) {
      library_.reset();
      library_ = share({.store = store_, .deadline = deadline});
    }
    EXPECT_EQ(outcome_of(keys), LookUpOutcome::miss_corrupt);
    store_->arm({.verb = PageVerb::find, .probability = known ? 1.0 : 0.0});
    EXPECT_EQ(outcome_of(keys), LookUpOutcome::miss_corrupt) << "it is remembered";
    store_->arm({});
    expect_sum();
  }
  publish(keys);
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::hit_nvme);
  EXPECT_EQ(store_->usage().pages, 3U * 3);
}

TEST_F(Library, SaysOfALostChunkThatItWasEvicted) {
  const std::vector<ChunkKey> keys = some_keys(2);
  publish(keys);
  lose(store_, page_key(keys[1], rows));
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::partial);
  EXPECT_EQ(store_->usage().pages, 3U);
  lose(store_, manifest_page_key(keys[0]));
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::miss_evicted);
  EXPECT_EQ(store_->usage().pages, 0U);
  EXPECT_EQ(library_->counters().tokens_found, tokens);
}

TEST_F(Library, ForgetsNothingForAnErrorThatMayPass) {
  const std::vector<ChunkKey> keys = some_keys(2);
  publish(keys);
  store_->arm({.verb = PageVerb::get, .probability = 1});
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::miss_corrupt);
  store_->arm({.verb = PageVerb::get, .nth = 2});
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::partial);
  store_->arm({});
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::hit_nvme);
  EXPECT_EQ(library_->counters().tokens_found, 3 * tokens);
  expect_sum();
}

TEST_F(Library, LeavesNothingOfAChunkThatCouldNotBeWritten) {
  const ChunkKey key = some_keys(1).front();
  ChunkLease lease;
  for (std::uint64_t nth = 1; nth <= 3; ++nth) {
    store_->arm({.verb = PageVerb::put, .nth = nth});
    EXPECT_EQ(publish(key, lease).error().code, Errc::io_error);
    EXPECT_EQ(store_->usage().pages, 0U);
    EXPECT_EQ(library_->counters().chunks, TierGauges{});
  }
  EXPECT_EQ(publish(key, lease).value(), Published::written);
}

TEST_F(Library, KeepsThePagesOfADroppedChunkForThoseWhoReadIt) {
  const std::vector<ChunkKey> keys = some_keys(2);
  publish(keys);
  auto reader = std::make_unique<LookUp>(find(keys));
  reader->lease.drop(1, make_error(Errc::io_error, "passes"));
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::hit_nvme);
  reader->lease.drop(1, make_error(Errc::corrupt, "a part"));
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::partial);
  EXPECT_TRUE(library_->read(reader->run[1], *reader->run[1].find(rows)).has_value());
  ChunkLease lease;
  EXPECT_EQ(publish(keys[1], lease).value(), Published::under_way);
  reader.reset();
  EXPECT_EQ(store_->usage().pages, 3U);
  EXPECT_EQ(publish(keys[1], lease).value(), Published::written);
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::hit_nvme);
}

TEST_F(Library, CountsALookUpAsThatOfWhichUseCouldBeMade) {
  const std::vector<ChunkKey> keys = some_keys(3);
  publish(keys);
  LookUp found = find(keys);
  library_->amend(found, 1, MissReason::corrupt);
  EXPECT_EQ(found.run.size(), 1U);
  EXPECT_EQ(library_->counters().look_ups[LookUpOutcome::partial], 1U);
  library_->amend(found, 0, MissReason::late);
  EXPECT_EQ(library_->counters().look_ups[LookUpOutcome::miss_late], 1U);
  EXPECT_EQ(library_->counters().tokens_found, 0U);
  expect_sum();
}

TEST_F(Library, TellsTenantsApart) {
  const TenantId first = library_->tenant_of(TenantSalt("a")).value();
  EXPECT_EQ(library_->tenant_of(TenantSalt()).value(), TenantId{});
  EXPECT_NE(first, TenantId{});
  EXPECT_NE(library_->tenant_of(TenantSalt("b")).value(), first);
  EXPECT_EQ(library_->tenant_of(TenantSalt("a")).value(), first);
  TenantId last{};
  for (int i = 0; i < 1100; ++i) last = library_->tenant_of(TenantSalt(std::to_string(i))).value();
  EXPECT_EQ(find(some_keys(1), last).outcome, LookUpOutcome::miss_never_stored);
}

class SmallLibrary : public MadeLibrary {
 protected:
  SmallLibrary() : MadeLibrary(/*chunks=*/6) {}
};

TEST_F(SmallLibrary, EvictsTheEndOfThePrefixThatWasUsedLongestAgo) {
  const std::vector<ChunkKey> old = some_keys(3, 100);
  const std::vector<ChunkKey> used = some_keys(3, 200);
  publish(old);
  publish(used);
  EXPECT_EQ(outcome_of(old), LookUpOutcome::hit_nvme);
  EXPECT_EQ(outcome_of(used), LookUpOutcome::hit_nvme);
  publish(some_keys(2, 300));
  EXPECT_EQ(find(old).run.size(), 1U);
  EXPECT_EQ(outcome_of(used), LookUpOutcome::hit_nvme);
  publish(some_keys(3, 300));
  EXPECT_EQ(outcome_of(std::span(used).first(2)), LookUpOutcome::hit_nvme);
  EXPECT_EQ(outcome_of(old), LookUpOutcome::miss_evicted);
  EXPECT_EQ(library_->counters().evicted, 3U);
  EXPECT_EQ(store_->usage().pages, 6U * 3);
}

TEST_F(SmallLibrary, SaysOfAnEvictedChunkThatItWas) {
  publish(some_keys(1, 100));
  publish(some_keys(6, 200));
  EXPECT_EQ(outcome_of(some_keys(1, 100)), LookUpOutcome::miss_evicted);
}

TEST_F(SmallLibrary, EvictsNoChunkThatIsLeased) {
  const std::vector<ChunkKey> held = some_keys(6, 100);
  publish(held);
  auto reader = std::make_unique<LookUp>(find(held));
  auto other = std::make_unique<LookUp>(find(std::span(held).first(5)));
  const ChunkKey key = some_keys(1, 200).front();
  ChunkLease lease;
  EXPECT_EQ(publish(key, lease).error().code, Errc::out_of_memory);
  EXPECT_EQ(outcome_of({&key, 1}), LookUpOutcome::miss_no_room);
  EXPECT_EQ(library_->make_room(1), 0U);
  reader.reset();
  EXPECT_EQ(publish(key, lease).value(), Published::written);
  const ChunkKey more = some_keys(1, 300).front();
  EXPECT_EQ(publish(more, lease).error().code, Errc::out_of_memory)
      << "the other reader has the rest";
  other.reset();
  EXPECT_EQ(publish(more, lease).value(), Published::written);
}

TEST_F(SmallLibrary, MakesNoRoomForAPrefixAtItsOwnCost) {
  const std::vector<ChunkKey> keys = some_keys(8);
  {
    ChunkLease lease;
    for (const ChunkKey& key : std::span(keys).first(6)) ASSERT_TRUE(publish(key, lease));
    EXPECT_EQ(publish(keys[6], lease).error().code, Errc::out_of_memory);
  }
  EXPECT_EQ(find(keys).run.size(), 6U);
}

TEST_F(SmallLibrary, MakesRoomForOthersUntilNothingIsLeft) {
  publish(some_keys(6));
  const std::uint64_t used = store_->usage().used_bytes;
  EXPECT_EQ(library_->make_room(part_bytes + 2), 2 * (part_bytes + 1));
  EXPECT_EQ(store_->usage().used_bytes, used - 2 * chunk_bytes);
  EXPECT_EQ(library_->make_room(SIZE_MAX), 4 * (part_bytes + 1));
  EXPECT_EQ(store_->usage().pages, 0U);
  EXPECT_EQ(library_->make_room(1), 0U);
  EXPECT_EQ(library_->counters().evicted, 6U);
  EXPECT_EQ(library_->counters().chunks, TierGauges{});
}

TEST(FullDirectory, EvictsToo) {
  const auto store = std::make_shared<doubles::MemoryStore>();
  const auto library =
      ChunkLibrary::share({.store = store, .deadline = deadline, .chunks_max = 4}).value();
  const std::vector<ChunkKey> keys = some_keys(9);
  for (const ChunkKey& key : keys) {
    ChunkLease lease;
    EXPECT_EQ(
        library->publish({.root = some_root, .key = key, .tokens = tokens}, parts_of(key), lease)
            .value(),
        Published::written);
  }
  EXPECT_EQ(library->counters().chunks.copies, 4U);
  EXPECT_EQ(store->usage().pages, 4U * 3);
}

class LateLibrary : public MadeLibrary {
 protected:
  LateLibrary() : MadeLibrary(/*chunks=*/6, std::chrono::milliseconds{5}) {}
};

TEST_F(LateLibrary, SaysThatAStoreDidNotAnswerInTime) {
  const std::vector<ChunkKey> keys = some_keys(2);
  publish(keys);
  store_->arm({.holds = true});
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::miss_late);
  EXPECT_EQ(outcome_of(some_keys(1, 9)), LookUpOutcome::miss_late);
  store_->arm({});
  while (store_->release()) continue;
  EXPECT_EQ(outcome_of(keys), LookUpOutcome::hit_nvme);
  expect_sum();
}

/// Pages of a chunk that goes and comes at the same time must never be another's to erase.
TEST(ChunkLibraryThreads, FindWhatWasPublishedOrNothing) {
  const auto store = std::make_shared<doubles::MemoryStore>(
      doubles::MemoryStoreOptions{.capacity_bytes = 5 * chunk_bytes});
  const auto library = ChunkLibrary::share({.store = store, .deadline = deadline}).value();
  const std::vector<ChunkKey> keys = some_keys(8);
  const auto work = [&](std::uint64_t seed) {
    Rng rng(seed);
    for (int i = 0; i < 300; ++i) {
      const ChunkKey& key = keys[rng.below(keys.size())];
      const FindRequest request{.root = some_root, .keys = {&key, 1}};
      ChunkLease lease;
      static_cast<void>(library->publish({.root = some_root, .key = key, .tokens = tokens},
                                         parts_of(key), lease));
      const LookUp found = library->find_run(request, tokens);
      if (found.run.empty()) continue;
      const auto bytes = library->read(found.run[0], *found.run[0].find(rows));
      ASSERT_TRUE(bytes.has_value()) << bytes.error().message();
      EXPECT_EQ(*bytes, parts_of(key)[0].bytes);
      if (rng.below(4) == 0) found.lease.drop(0, make_error(Errc::corrupt, "drop"));
    }
  };
  std::vector<std::jthread> threads;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  threads.clear();
  EXPECT_EQ(library->counters().look_ups.look_ups, 4U * 300);
  EXPECT_EQ(library->counters().chunks.in_flight, 0U);
  EXPECT_EQ(store->usage().pages, library->counters().chunks.copies * 3);
}

class LibraryInAFile : public ::testing::Test {
 protected:
  LibraryInAFile() {
    std::filesystem::create_directories(folder_);
    std::filesystem::remove(path());
  }
  ~LibraryInAFile() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path() const { return (folder_ / "chunks").string(); }
  [[nodiscard]] std::shared_ptr<ChunkLibrary> open() const {
    auto library =
        ChunkLibrary::open_file({.path = path(), .bytes = 8 << 20}, {.deadline = deadline});
    EXPECT_TRUE(library.has_value()) << library.error().message();
    return *library;
  }
  static void publish(ChunkLibrary& library, const ChunkKey& key, std::vector<PartBytes> parts) {
    ChunkLease lease;
    ASSERT_TRUE(library.publish({.root = some_root, .key = key, .tokens = tokens}, std::move(parts),
                                lease));
  }
  static LookUp find(ChunkLibrary& library, std::span<const ChunkKey> keys) {
    return library.find_run({.root = some_root, .keys = keys}, tokens);
  }

 private:
  /// Tests run side by side: each has a folder of its own.
  std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("library_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(LibraryInAFile, FindsWhatItHadBeforeItWasClosed) {
  const std::vector<ChunkKey> keys = some_keys(5);
  {
    const auto library = open();
    EXPECT_EQ(open(), library);
    for (const ChunkKey& key : keys) publish(*library, key, parts_of(key));
    const LookUp found = find(*library, keys);
    EXPECT_EQ(found.run.size(), 5U);
  }
  const auto library = open();
  EXPECT_EQ(library->counters().chunks.copies, 5U);
  EXPECT_EQ(library->counters().chunks.resident, 5U * (part_bytes + 1));
  const LookUp found = find(*library, keys);
  ASSERT_EQ(found.run.size(), 5U);
  EXPECT_EQ(found.outcome, LookUpOutcome::hit_nvme);
  EXPECT_EQ(library->read(found.run[4], *found.run[4].find(rows)).value(),
            parts_of(keys[4])[0].bytes);
  // Namespaces of the chunks before are not known.
  const ChunkKey other{.high = 77, .low = 1};
  EXPECT_EQ(library->find_run({.root = root_numbered(9), .keys = {&other, 1}}, tokens).outcome,
            LookUpOutcome::miss_never_stored);
  EXPECT_EQ(library->make_room(1), 0U) << "all are leased";
}

TEST_F(LibraryInAFile, KnowsWhoseItsChunksAre) {
  const std::vector<ChunkKey> keys = some_keys(6);
  const std::array<std::string, 3> salts{"a", "b", ""};
  const auto number = [](ChunkLibrary& library, const std::string& salt) {
    return library.tenant_of(TenantSalt(salt)).value();
  };
  {
    const auto library = open();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ChunkLease lease;
      ASSERT_TRUE(library->publish({.root = some_root,
                                    .tenant = number(*library, salts[i % salts.size()]),
                                    .key = keys[i],
                                    .tokens = tokens},
                                   parts_of(keys[i]), lease));
    }
  }
  const auto library = open();
  number(*library, "c");  // numbers are given in another order
  for (const std::string salt : {"", "b", "a"}) {
    EXPECT_EQ(library->gauges(number(*library, salt)).copies, 2U) << salt;
  }
  // A tenant's chunks make room for its own.
  library->make_room(SIZE_MAX, number(*library, "a"));
  EXPECT_EQ(library->gauges(number(*library, "a")).copies, 0U);
  EXPECT_EQ(library->counters().chunks.copies, 4U);
}

TEST_F(LibraryInAFile, ErasesPagesOfNoWholeChunk) {
  const std::vector<ChunkKey> keys = some_keys(3);
  // A part that has the size of a manifest, and one that is a copy of a manifest.
  std::vector<PartBytes> like_manifests{{rows, std::vector<std::byte>(manifest_bytes)}};
  {
    const auto library = open();
    publish(*library, keys[0], parts_of(keys[0]));
    publish(*library, keys[1], like_manifests);
    publish(*library, keys[2], parts_of(keys[2]));
    offload::StoreCalls calls(library->store(), deadline);
    const auto manifest = calls.read(manifest_page_key(keys[0])).value();
    const PageKey lost = page_key(keys[2], state);
    ASSERT_TRUE(calls.erase({&lost, 1}));
    ASSERT_TRUE(calls.write({{page_key({.high = ~0ULL, .low = 5}, rows), {std::byte{1}}},
                             {{.high = ~1ULL, .low = 6}, manifest}}));
    EXPECT_EQ(library->store()->usage().pages, 3U + 2 + 2 + 2);
  }
  {
    const auto library = open();
    EXPECT_EQ(library->counters().chunks.copies, 2U);
    EXPECT_EQ(find(*library, {&keys[0], 1}).outcome, LookUpOutcome::hit_nvme);
    EXPECT_EQ(find(*library, {&keys[1], 1}).outcome, LookUpOutcome::hit_nvme);
    EXPECT_EQ(find(*library, {&keys[2], 1}).outcome, LookUpOutcome::miss_never_stored);
    EXPECT_EQ(library->store()->usage().pages, 3U + 2);
    library->make_room(SIZE_MAX);
  }
  EXPECT_FALSE(std::filesystem::exists(path())) << "a file without pages is worth nothing";
}

}  // namespace
}  // namespace terrace::tiers
