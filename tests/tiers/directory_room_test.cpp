// Limits, quotas and victims.
#include <gtest/gtest.h>

#include "tiers/made_directory.hpp"

namespace terrace::tiers {
namespace {

constexpr TenantId one{1};
constexpr TenantId two{2};

TEST(DirectoryReserve, CountsItsBytesAtOnceAndGivesThemBackIfItIsCancelled) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  const CopyHandle copy = made.reserve(keys[0], Tier::nvme, 70, one)->handle;
  EXPECT_EQ(made.directory.gauges(Tier::nvme), (TierGauges{.in_flight = 70}));
  EXPECT_EQ(made.directory.gauges(one, Tier::nvme), (TierGauges{.in_flight = 70}));
  EXPECT_EQ(made.reserve(keys[0], Tier::nvme)->kind, Reserved::Kind::in_flight);
  EXPECT_EQ(made.directory.cancel(copy), Answer::done);
  EXPECT_EQ(made.directory.cancel(copy), Answer::stale);
  EXPECT_EQ(made.directory.publish(copy, {}), Answer::stale);
  EXPECT_EQ(made.directory.gauges(Tier::nvme), TierGauges{});
  EXPECT_EQ(made.directory.usage(), DirectoryUsage{});
}

TEST(DirectoryReserve, SaysThatTheTierHasTheChunk) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  const CopyHandle copy = made.store(keys[0]);
  const Reserved again = made.reserve(keys[0]).value();
  EXPECT_EQ(again.kind, Reserved::Kind::resident);
  EXPECT_EQ(again.handle, copy);
  EXPECT_EQ(made.reserve(keys[0], Tier::remote)->kind, Reserved::Kind::reserved);
}

TEST(DirectoryReserve, RefusesWhatNoTierCanHave) {
  MadeDirectory made({.chunks_max = 100, .tenants_max = 2});
  const ChunkKey key = some_keys(1)[0];
  const auto code = [](const Result<Reserved>& reserved) { return reserved.error().code; };
  EXPECT_EQ(code(made.reserve(key, Tier::device)), Errc::invalid_argument);
  EXPECT_EQ(code(made.reserve(key, Tier::host, 0)), Errc::invalid_argument);
  EXPECT_EQ(code(made.reserve(key, Tier::host, Directory::copy_bytes_max + 1)),
            Errc::invalid_argument);
  EXPECT_EQ(code(made.reserve(key, Tier::host, 1, two)), Errc::invalid_argument);
  EXPECT_TRUE(made.reserve(key, Tier::host, Directory::copy_bytes_max));
  EXPECT_EQ(made.directory.gauges(Tier::host).in_flight, Directory::copy_bytes_max);
}

TEST(DirectoryReserve, KeepsToTheLimitOfTheTierAndToTheQuotaOfTheTenant) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(4);
  made.directory.set_limit(Tier::host, 300);
  made.directory.set_quota(one, Tier::host, 150);
  made.store(keys[0], Tier::host, 100, one);
  const auto beyond_quota = made.reserve(keys[1], Tier::host, 51, one);
  ASSERT_FALSE(beyond_quota);
  EXPECT_EQ(beyond_quota.error().lacks, Tier::host);
  EXPECT_EQ(beyond_quota.error().message(),
            "tenant 1 has a quota of 150 B in tier host: evict some of its copies");
  EXPECT_TRUE(made.reserve(keys[1], Tier::host, 50, one));
  EXPECT_TRUE(made.reserve(keys[2], Tier::host, 150, two));
  const auto beyond_limit = made.reserve(keys[3], Tier::host, 1, two);
  ASSERT_FALSE(beyond_limit);
  EXPECT_EQ(beyond_limit.error().message(), "tier host has a limit of 300 B: evict some copies");
  EXPECT_TRUE(made.reserve(keys[3], Tier::nvme, 1000, two));
}

TEST(DirectoryReserve, CountsACopyToTheTenantThatStoredTheChunkFirst) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  made.store(keys[0], Tier::host, 100, one);
  made.store(keys[0], Tier::nvme, 60, two);
  EXPECT_EQ(made.directory.gauges(one, Tier::nvme).resident, 60U);
  EXPECT_EQ(made.directory.gauges(two, Tier::nvme).resident, 0U);
  EXPECT_EQ(made.directory.chunk(keys[0])->tenant, one);
}

TEST(DirectoryReserve, RefusesMoreChunksThanTheBlockHasRoomFor) {
  MadeDirectory made({.chunks_max = 3, .copies_max = 4});
  const auto keys = some_keys(4);
  for (std::size_t i = 0; i < 3; ++i) made.store(keys[i]);
  const auto beyond = made.reserve(keys[3]);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Errc::out_of_memory);
  EXPECT_EQ(made.find(std::span(keys).last(1)).outcome, LookUpOutcome::miss_no_room);
  made.store(keys[0], Tier::nvme);
  EXPECT_FALSE(made.reserve(keys[1], Tier::nvme));
  EXPECT_EQ(made.find(std::span(keys).subspan(1, 1)).outcome, LookUpOutcome::hit_host);
  // The chunk of the first victim is still on NVMe: another one has to go, too.
  EXPECT_EQ(keys_of(made.evict(100)), std::vector{keys[0]});
  EXPECT_FALSE(made.reserve(keys[3]));
  EXPECT_EQ(keys_of(made.evict(100)), std::vector{keys[2]});
  made.store(keys[3]);
}

TEST(DirectoryEvict, TakesTheCopiesThatWereUsedLongestAgo) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(4);
  for (const ChunkKey& key : keys) made.store(key);
  made.find(std::span(keys).first(1));
  EXPECT_EQ(keys_of(made.evict(101)), (std::vector{keys[1], keys[2]}));
  EXPECT_EQ(keys_of(made.evict(0)), std::vector<ChunkKey>{});
  EXPECT_EQ(keys_of(made.evict(1000)), (std::vector{keys[3], keys[0]}));
}

TEST(DirectoryEvict, StaysWithinATenantIfOneIsNamed) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(4);
  for (std::size_t i = 0; i < 4; ++i) {
    made.store(keys[i], Tier::host, 100, i % 2 == 0 ? one : two, at_seconds(std::int64_t(i)));
  }
  EXPECT_EQ(keys_of(made.evict(1000, Tier::host, two)), (std::vector{keys[1], keys[3]}));
  EXPECT_EQ(made.directory.gauges(one, Tier::host).copies, 2U);
}

TEST(DirectoryEvict, TakesTheOldestOfAllTenantsOtherwise) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(4);
  const TenantId tenants[] = {two, one, one, two};
  for (std::size_t i = 0; i < 4; ++i) {
    made.store(keys[i], Tier::host, 100, tenants[i], at_seconds(std::int64_t(i)));
  }
  EXPECT_EQ(keys_of(made.evict(300)), (std::vector{keys[0], keys[1], keys[2]}));
}

TEST(DirectoryEvict, TakesTheCopyOfOneTierAlone) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  made.store(keys[0]);
  made.store(keys[0], Tier::nvme, 60);
  const auto freed = made.evict(1);
  ASSERT_EQ(freed.size(), 1U);
  EXPECT_EQ(freed[0].tier, Tier::host);
  EXPECT_FALSE(freed[0].was_last);
  EXPECT_TRUE(made.evict(1).empty());
  EXPECT_EQ(made.find(keys).outcome, LookUpOutcome::hit_nvme);
}

}  // namespace
}  // namespace terrace::tiers
