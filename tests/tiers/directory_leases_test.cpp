#include <gtest/gtest.h>

#include <algorithm>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"
#include "tiers/made_directory.hpp"

namespace terrace::tiers {
namespace {

constexpr std::uint32_t pins_max = Directory::pins_max;

TEST(DirectoryLease, NamesThePlaceAndKeepsItFromBeingEvicted) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(2);
  made.store(keys[0]);
  made.store(keys[1]);
  const auto lease =
      made.directory.lease({.key = keys[0], .now = at_seconds(0), .until = at_seconds(10)});
  ASSERT_TRUE(lease && *lease);
  EXPECT_EQ((*lease)->copy.place, keys[0].high);
  EXPECT_EQ((*lease)->copy.bytes, 100U);
  EXPECT_EQ((*lease)->copy.checksum, 5U);
  EXPECT_EQ(keys_of(made.evict(200, Tier::host, {}, at_seconds(9))), std::vector{keys[1]});
  EXPECT_EQ(made.directory.check((*lease)->handle, at_seconds(9)), Answer::done);
  EXPECT_EQ(made.directory.end_lease((*lease)->handle, at_seconds(9)), Answer::done);
  EXPECT_EQ(keys_of(made.evict(200, Tier::host, {}, at_seconds(9))), std::vector{keys[0]});
}

TEST(DirectoryLease, IsStaleOnceItHasExpiredOrEnded) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  made.store(keys[0]);
  const LeaseHandle expires = made.lease(keys[0], at_seconds(0), at_seconds(10));
  const LeaseHandle ends = made.lease(keys[0], at_seconds(0), at_seconds(20));
  EXPECT_EQ(made.directory.check(expires, at_seconds(10)), Answer::stale);
  EXPECT_EQ(made.directory.end_lease(expires, at_seconds(10)), Answer::stale);
  EXPECT_EQ(made.directory.chunk(keys[0])->copies[0]->leases, 1U);
  EXPECT_EQ(made.directory.end_lease(ends, at_seconds(10)), Answer::done);
  EXPECT_EQ(made.directory.end_lease(ends, at_seconds(10)), Answer::stale);
  EXPECT_EQ(made.directory.check({}, at_seconds(0)), Answer::stale);
  EXPECT_EQ(made.directory.check({.lease = 4'000'000'000}, at_seconds(0)), Answer::stale);
  EXPECT_EQ(made.directory.usage().leases, 0U);
}

TEST(DirectoryLease, ThatEndsLateEndsNoneOfItsSuccessors) {
  MadeDirectory made({.chunks_max = 100, .leases_max = 1});
  const auto keys = some_keys(1);
  made.store(keys[0]);
  const LeaseHandle first = made.lease(keys[0], at_seconds(0), at_seconds(1));
  const LeaseHandle second = made.lease(keys[0], at_seconds(2), at_seconds(9));
  EXPECT_EQ(first.lease, second.lease);
  EXPECT_EQ(made.directory.end_lease(first, at_seconds(3)), Answer::stale);
  EXPECT_EQ(made.directory.check(second, at_seconds(3)), Answer::done);
  EXPECT_TRUE(made.evict(1, Tier::host, {}, at_seconds(3)).empty());
}

TEST(DirectoryLease, IsRefusedIfThereAreTooManyOrItEndsBeforeItBegins) {
  MadeDirectory made({.chunks_max = 100, .leases_max = 2});
  const auto keys = some_keys(2);
  made.store(keys[0]);
  const LeaseRequest request{.key = keys[0], .now = at_seconds(5), .until = at_seconds(5)};
  EXPECT_EQ(made.directory.lease(request).error().code, Errc::invalid_argument);
  EXPECT_FALSE(made.directory.lease({.key = keys[1], .until = at_seconds(1)}).value());
  EXPECT_FALSE(
      made.directory.lease({.key = keys[0], .tier = Tier::nvme, .until = at_seconds(1)}).value());
  EXPECT_EQ(made.directory.lease({.key = keys[0], .tier = Tier::device, .until = at_seconds(1)})
                .error()
                .code,
            Errc::invalid_argument);
  made.lease(keys[0], at_seconds(0), at_seconds(1));
  made.lease(keys[0], at_seconds(0), at_seconds(2));
  EXPECT_EQ(made.directory.lease({.key = keys[0], .until = at_seconds(1)}).error().code,
            Errc::out_of_memory);
  made.lease(keys[0], at_seconds(1), at_seconds(2));
}

/// Leases of any lengths that end in any order: at any time, those copies can be evicted whose
/// leases have ended or expired, and no others.
TEST(DirectoryLease, ExpiresWhenItIsDueWhicheverOthersEndBefore) {
  const std::uint64_t seed = fuzz_seed(123);
  Rng rng(seed);
  for (std::uint64_t round = 0; round < std::min<std::uint64_t>(fuzz_steps() / 100, 500); ++round) {
    SCOPED_TRACE(replay(seed, round));
    constexpr std::size_t count = 64;
    MadeDirectory made({.chunks_max = count, .leases_max = count});
    const auto keys = some_keys(count);
    std::vector<TimePoint> ends(count);
    std::vector<std::size_t> early;
    std::vector<LeaseHandle> leases;
    for (std::size_t i = 0; i < count; ++i) {
      made.store(keys[i]);
      ends[i] = at_seconds(std::int64_t(1 + rng.below(1000)));
      leases.push_back(made.lease(keys[i], at_seconds(0), ends[i]));
      if (rng.below(2) == 0) early.push_back(i);
    }
    while (!early.empty()) {
      const std::size_t taken = rng.below(early.size());
      const std::size_t i = early[taken];
      early.erase(early.begin() + static_cast<std::ptrdiff_t>(taken));
      ASSERT_EQ(made.directory.end_lease(leases[i], at_seconds(0)), Answer::done);
      ends[i] = at_seconds(0);
      ASSERT_TRUE(Directory::open(made.block.span()));
    }
    const TimePoint now = at_seconds(500);
    std::vector<ChunkKey> due;
    for (std::size_t i = 0; i < count; ++i) {
      if (ends[i] <= now) due.push_back(keys[i]);
    }
    ASSERT_EQ(keys_of(made.evict(Directory::no_limit, Tier::host, {}, now)), due);
  }
}

TEST(DirectoryDrop, LeavesTheBytesToThoseWhoLeaseThem) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  const CopyHandle copy = made.store(keys[0]);
  const LeaseHandle lease = made.lease(keys[0], at_seconds(0), at_seconds(10));
  EXPECT_EQ(made.directory.drop(copy, DropReason::evicted), Answer::done);
  EXPECT_EQ(made.directory.drop(copy, DropReason::evicted), Answer::stale);
  EXPECT_TRUE(made.collect(at_seconds(1)).empty());
  EXPECT_EQ(made.directory.check(lease, at_seconds(1)), Answer::done);
  EXPECT_EQ(made.directory.gauges(Tier::host), (TierGauges{.in_flight = 100}));
  // Its place is in use: a successor has to wait.
  EXPECT_EQ(made.reserve(keys[0])->kind, Reserved::Kind::in_flight);
  const auto freed = made.collect(at_seconds(10));
  ASSERT_EQ(freed.size(), 1U);
  EXPECT_EQ(freed[0].place, keys[0].high);
  EXPECT_TRUE(freed[0].was_last);
  EXPECT_EQ(made.directory.gauges(Tier::host), TierGauges{});
  EXPECT_EQ(made.directory.usage(), DirectoryUsage{});
}

TEST(DirectoryDrop, ThatComesLateTakesNoSuccessorOut) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  const CopyHandle first = made.store(keys[0]);
  made.evict(1);
  const CopyHandle second = made.store(keys[0]);
  EXPECT_EQ(first.copy, second.copy);
  EXPECT_EQ(made.directory.drop(first, DropReason::corrupt), Answer::stale);
  EXPECT_EQ(made.directory.pin(first).value(), Answer::stale);
  EXPECT_EQ(made.directory.publish(first, {}), Answer::stale);
  EXPECT_EQ(made.directory.cancel(first), Answer::stale);
  EXPECT_EQ(made.find(keys).outcome, LookUpOutcome::hit_host);
}

TEST(DirectoryDrop, OfOneTierLeavesTheChunkInTheOthers) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  const CopyHandle on_host = made.store(keys[0]);
  made.store(keys[0], Tier::nvme, 60);
  EXPECT_EQ(made.directory.drop(on_host, DropReason::corrupt), Answer::done);
  EXPECT_EQ(made.find(keys).outcome, LookUpOutcome::hit_nvme);
  const auto freed = made.collect();
  ASSERT_EQ(freed.size(), 1U);
  EXPECT_FALSE(freed[0].was_last);
  made.evict(1, Tier::nvme);
  EXPECT_EQ(made.find(keys).outcome, LookUpOutcome::miss_evicted);
}

TEST(DirectoryPin, KeepsACopyUntilItIsUnpinnedAsOften) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  const CopyHandle copy = made.store(keys[0]);
  EXPECT_EQ(made.directory.unpin(copy), Answer::stale);
  EXPECT_EQ(made.directory.pin(copy).value(), Answer::done);
  EXPECT_EQ(made.directory.pin(copy).value(), Answer::done);
  EXPECT_EQ(made.directory.gauges(Tier::host),
            (TierGauges{.resident = 100, .pinned = 100, .copies = 1}));
  EXPECT_EQ(made.directory.unpin(copy), Answer::done);
  EXPECT_TRUE(made.evict(1).empty());
  EXPECT_EQ(made.directory.unpin(copy), Answer::done);
  EXPECT_EQ(made.directory.gauges(Tier::host), (TierGauges{.resident = 100, .copies = 1}));
  EXPECT_EQ(made.evict(1).size(), 1U);
}

TEST(DirectoryPin, IsRefusedBeyondItsMostAndGoneWithADroppedCopy) {
  MadeDirectory made({.chunks_max = 100});
  const auto keys = some_keys(1);
  const CopyHandle copy = made.store(keys[0]);
  for (std::uint32_t i = 0; i < pins_max; ++i) EXPECT_TRUE(made.directory.pin(copy));
  EXPECT_EQ(made.directory.pin(copy).error().code, Errc::out_of_memory);
  EXPECT_EQ(made.directory.chunk(keys[0])->copies[0]->pins, pins_max);
  EXPECT_EQ(made.directory.drop(copy, DropReason::corrupt), Answer::done);
  EXPECT_EQ(made.directory.unpin(copy), Answer::stale);
  EXPECT_EQ(made.collect().size(), 1U);
  EXPECT_EQ(made.directory.gauges(Tier::host), TierGauges{});
}

}  // namespace
}  // namespace terrace::tiers
