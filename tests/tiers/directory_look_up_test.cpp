#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tiers/made_directory.hpp"

namespace terrace::tiers {
namespace {

using testing::ElementsAre;

TEST(DirectoryLookUp, FindsTheLongestRunFromTheFrontOfEachTier) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(6);
  for (const std::size_t i : {0U, 1U, 4U}) made.store(keys[i]);
  for (const std::size_t i : {1U, 2U}) made.store(keys[i], Tier::nvme);
  made.store(keys[3], Tier::remote);
  const FoundRun found = made.find(keys);
  // The fifth chunk is on the host, after one that only a remote store has.
  EXPECT_THAT(found.chunks, ElementsAre(2, 3, 5));
  EXPECT_EQ(found.outcome, LookUpOutcome::partial);
}

TEST(DirectoryLookUp, IsAHitOfTheSlowestTierThatItNeeds) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(3);
  made.store(keys[0]);
  made.store(keys[1]);
  made.store(keys[1], Tier::nvme);
  made.store(keys[2], Tier::remote);
  EXPECT_EQ(made.find(std::span(keys).first(2)).outcome, LookUpOutcome::hit_host);
  EXPECT_EQ(made.find(keys).outcome, LookUpOutcome::hit_remote);
  made.evict(100);
  made.evict(100);
  EXPECT_EQ(made.find(std::span(keys).subspan(1, 1)).outcome, LookUpOutcome::hit_nvme);
  const LookUpCounters counters = made.directory.counters();
  EXPECT_EQ(counters.look_ups, 3U);
  EXPECT_EQ(counters[LookUpOutcome::hit_nvme], 1U);
}

TEST(DirectoryLookUp, SaysWhyTheFirstChunkIsNotThere) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(5);
  const auto outcome = [&](std::size_t key, const Digest& root = some_root) {
    return made.directory.find({.root = root, .keys = std::span(keys).subspan(key, 1)})
        .value()
        .outcome;
  };
  EXPECT_EQ(outcome(0, root_numbered(1)), LookUpOutcome::miss_never_stored)
      << "an empty directory has no other namespace";
  made.store(keys[0]);
  EXPECT_EQ(outcome(1), LookUpOutcome::miss_never_stored);
  EXPECT_EQ(outcome(1, root_numbered(1)), LookUpOutcome::miss_other_namespace);

  made.evict(100);
  EXPECT_EQ(outcome(0), LookUpOutcome::miss_evicted);

  const CopyHandle damaged = made.store(keys[1]);
  EXPECT_EQ(made.directory.drop(damaged, DropReason::corrupt), Answer::done);
  EXPECT_EQ(outcome(1), LookUpOutcome::miss_corrupt);
  made.collect();
  EXPECT_EQ(outcome(1), LookUpOutcome::miss_corrupt);

  const CopyHandle under_way = made.reserve(keys[2])->handle;
  EXPECT_EQ(outcome(2), LookUpOutcome::miss_late);
  EXPECT_EQ(made.directory.cancel(under_way), Answer::done);
  EXPECT_EQ(outcome(2), LookUpOutcome::miss_never_stored);

  made.directory.set_limit(Tier::host, 50);
  EXPECT_EQ(made.reserve(keys[3]).error().code, Errc::out_of_memory);
  EXPECT_EQ(outcome(3), LookUpOutcome::miss_no_room);

  made.directory.set_limit(Tier::host, Directory::no_limit);
  made.store(keys[1]);
  EXPECT_EQ(outcome(1), LookUpOutcome::hit_host);
}

TEST(DirectoryLookUp, CountsASecondOutcomeInPlaceOfTheFirst) {
  MadeDirectory made({.chunks_max = 100, .tenants_max = 2});
  const auto keys = some_keys(1);
  made.store(keys[0]);
  EXPECT_EQ(made.find(keys, {}, TenantId{1}).outcome, LookUpOutcome::hit_host);
  made.directory.amend(TenantId{1}, LookUpOutcome::hit_host, LookUpOutcome::miss_corrupt);
  // There is no such look-up of this tenant.
  made.directory.amend(TenantId{0}, LookUpOutcome::hit_host, LookUpOutcome::miss_late);
  const LookUpCounters counters = made.directory.counters();
  EXPECT_EQ(counters.look_ups, 1U);
  EXPECT_EQ(counters[LookUpOutcome::miss_corrupt], 1U);
  EXPECT_EQ(counters[LookUpOutcome::hit_host], 0U);
  EXPECT_EQ(made.directory.counters(TenantId{1}), counters);
  EXPECT_EQ(made.directory.counters(TenantId{0}), LookUpCounters{});
}

TEST(DirectoryLookUp, IsRefusedWithoutKeysAndOfAnUnknownTenant) {
  MadeDirectory made({.chunks_max = 100, .tenants_max = 2});
  const auto keys = some_keys(1);
  EXPECT_FALSE(made.directory.find({.root = some_root}));
  EXPECT_FALSE(made.directory.find({.root = some_root, .tenant = TenantId{2}, .keys = keys}));
  EXPECT_EQ(made.directory.counters(), LookUpCounters{});
}

TEST(DirectoryLookUp, NeverFindsACopyThatIsBeingWrittenOrWasDropped) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(2);
  made.store(keys[0]);
  const CopyHandle second = made.reserve(keys[1])->handle;
  EXPECT_EQ(made.find(keys).chunks[2], 1U);
  EXPECT_FALSE(made.directory.chunk(keys[1]));
  EXPECT_FALSE(made.directory.lease({.key = keys[1], .until = at_seconds(1)}).value());
  EXPECT_EQ(made.directory.publish(second, {}), Answer::done);
  EXPECT_EQ(made.find(keys).chunks[2], 2U);
  EXPECT_EQ(made.directory.drop(second, DropReason::evicted), Answer::done);
  EXPECT_EQ(made.find(keys).chunks[2], 1U);
  EXPECT_FALSE(made.directory.chunk(keys[1]));
}

TEST(DirectoryLookUp, UsesARunFromItsEndSoThatTheEndIsEvictedFirst) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(4);
  for (const ChunkKey& key : keys) made.store(key);
  made.find(keys);
  EXPECT_EQ(keys_of(made.evict(200)), (std::vector{keys[3], keys[2]}));
  for (const std::size_t i : {2U, 3U}) made.store(keys[i]);
  made.directory.touch(keys, at_seconds(1));
  EXPECT_EQ(keys_of(made.evict(200)), (std::vector{keys[3], keys[2]}));
}

TEST(DirectoryLookUp, CountsUsesAndSaysWhenTheLastWas) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  made.store(keys[0], Tier::host, 100, {}, at_seconds(2));
  EXPECT_EQ(made.directory.chunk(keys[0])->uses, 1U);
  made.find(keys, at_seconds(7));
  const StoredChunk chunk = made.directory.chunk(keys[0]).value();
  EXPECT_EQ(chunk.uses, 2U);
  EXPECT_LE(chunk.last_use, at_seconds(7));
  EXPECT_GT(chunk.last_use, at_seconds(6));
}

TEST(DirectoryLookUp, RemembersTheUsesOfAChunkThatWasEvicted) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  made.store(keys[0]);
  made.evict(1);
  made.store(keys[0]);
  EXPECT_EQ(made.directory.chunk(keys[0])->uses, 2U);
}

/// The figures of the table of gone chunks that directory.hpp states.
TEST(DirectoryLookUp, RemembersMostOfHalfAsManyGoneChunksAsItHasRoomFor) {
  constexpr std::size_t chunks_max = 4096;
  MadeDirectory made({.chunks_max = chunks_max, .seed = 3});
  const auto keys = some_keys(chunks_max);
  for (const ChunkKey& key : keys) made.store(key);
  made.evict(100 * chunks_max);
  std::size_t remembered = 0;
  for (std::size_t i = chunks_max / 2; i < chunks_max; ++i) {
    const FoundRun found = made.find(std::span(keys).subspan(i, 1));
    remembered += found.outcome == LookUpOutcome::miss_evicted ? 1 : 0;
  }
  // The mean of what the last half, from its oldest to its newest, is remembered with.
  EXPECT_GT(remembered, chunks_max / 2 * 95 / 100);
  std::size_t mistaken = 0;
  for (const ChunkKey& key : some_keys(100'000, 1'000'000)) {
    const FoundRun found = made.find(std::span(&key, 1));
    mistaken += found.outcome == LookUpOutcome::miss_never_stored ? 0 : 1;
  }
  EXPECT_LE(mistaken, 1U) << "about 3 in 100 million are expected";
}

}  // namespace
}  // namespace terrace::tiers
