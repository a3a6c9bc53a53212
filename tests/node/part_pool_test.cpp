#include "memory/part_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::node {
namespace {

constexpr std::uint64_t segment = 64 << 10;
constexpr std::uint64_t pool_bytes = 4 * segment;
const std::string one = "1";
const std::string two = "2";

PartKey key_of(std::uint64_t number) { return {.chunk = {.high = number}, .checksum = number}; }

class Pool : public ::testing::Test {
 protected:
  /// Adds a part that is ready and that nobody holds.
  Status add(std::uint64_t number, const std::string& tenant, std::uint64_t bytes) {
    TERRACE_ASSIGN(PooledPart* const part, pool_.add(key_of(number), tenant, bytes));
    pool_.settle(*part, {});
    return {};
  }
  bool has(std::uint64_t number) { return pool_.find(key_of(number)) != nullptr; }

  PartPool pool_{{.bytes = pool_bytes}};
};

TEST_F(Pool, EvictsWhatWasLetGoLongestAgo) {
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(add(i, one, segment));
  PooledPart* const used = pool_.find(key_of(0));
  pool_.hold(*used);
  pool_.let_go(*used);
  ASSERT_TRUE(add(4, one, segment));
  EXPECT_TRUE(has(0));
  EXPECT_FALSE(has(1));
  EXPECT_EQ(pool_.counters().evicted, 1U);
}

TEST_F(Pool, DoesNotEvictWhatIsHeldOrLoading) {
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(add(i, one, segment));
    pool_.hold(*pool_.find(key_of(i)));
  }
  PooledPart* const loading = pool_.add(key_of(3), one, segment).value();
  EXPECT_EQ(pool_.add(key_of(4), one, 1).error().code, Errc::out_of_memory);
  pool_.settle(*loading, {});
  EXPECT_TRUE(add(4, one, 1));
  EXPECT_FALSE(has(3));
}

TEST_F(Pool, PartsThatDidNotComeAreGone) {
  PooledPart* const part = pool_.add(key_of(1), one, 100).value();
  std::vector<Errc> heard;
  pool_.hold(*part);
  part->waiting.push_back([&](const Status& loaded) {
    heard.push_back(loaded.error().code);
    pool_.let_go(*part);
  });
  pool_.settle(*part, fail(Errc::corrupt, "damaged"));
  EXPECT_EQ(heard, std::vector{Errc::corrupt});
  EXPECT_FALSE(has(1));
  EXPECT_EQ(pool_.counters().part_bytes, 0U);
  EXPECT_EQ(pool_.counters().held_bytes, 0U);
}

TEST_F(Pool, TenantsNeverShareASegment) {
  ASSERT_TRUE(add(1, one, 100));
  ASSERT_TRUE(add(2, two, 100));
  EXPECT_NE(pool_.find(key_of(1))->segment, pool_.find(key_of(2))->segment);
}

TEST_F(Pool, ALargePartTakesThePlaceOfSmallSegments) {
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(add(i, one, segment));
  pool_.hold(*pool_.find(key_of(3)));
  EXPECT_TRUE(add(10, one, 2 * segment));
  EXPECT_TRUE(has(3));
  EXPECT_EQ(pool_.add(key_of(11), one, 4 * segment).error().code, Errc::out_of_memory);
}

TEST_F(Pool, ATenantTakesASegmentFromOneThatHasMore) {
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(add(i, one, segment));
  ASSERT_TRUE(add(10, two, segment));
  EXPECT_EQ(pool_.take_retired().size(), 1U);
  ASSERT_TRUE(add(11, two, segment));
  ASSERT_TRUE(add(12, two, segment));  // two each: now it evicts its own
  EXPECT_FALSE(has(10));
  EXPECT_EQ(pool_.counters().segments_retired, 2U);
  EXPECT_EQ(pool_.counters().bytes, pool_bytes);
}

TEST_F(Pool, APartLargerThanASegmentHasOneOfItsOwn) {
  EXPECT_TRUE(add(1, one, 3 * segment));
  ASSERT_TRUE(add(2, two, segment));
  EXPECT_EQ(pool_.add(key_of(3), one, 5 * segment).error().code, Errc::out_of_memory);
  EXPECT_TRUE(has(1) && has(2));  // for nothing that cannot be, nothing goes
}

/// Random calls: bytes stay what was written as long as a part is held, and sums are right.
TEST_F(Pool, KeepsHeldBytesWhateverElseHappens) {
  const std::uint64_t seed = fuzz_seed(5);
  Rng rng(seed);
  std::multiset<std::uint64_t> held;
  for (std::uint64_t step = 0; step < fuzz_steps(); ++step) {
    SCOPED_TRACE(replay(seed, step));
    const std::uint64_t number = rng.below(60);
    const std::string& tenant = number % 3 == 0 ? two : one;
    PooledPart* part = pool_.find(key_of(number));
    if (part == nullptr) {
      const auto added = pool_.add(key_of(number), tenant, 1 + number * 1000);
      if (!added) continue;
      part = *added;
      std::memset(PartPool::memory_of(*part).data(), static_cast<int>(number), part->bytes);
      pool_.settle(*part, {});
    } else if (held.contains(number) && rng.below(3) != 0) {
      pool_.let_go(*part);
      held.erase(held.find(number));
    } else if (held.size() < 12) {
      pool_.hold(*part);
      held.insert(number);
    }
    std::uint64_t held_bytes = 0;
    for (const std::uint64_t each : std::set<std::uint64_t>(held.begin(), held.end())) {
      PooledPart* const kept = pool_.find(key_of(each));
      ASSERT_NE(kept, nullptr);
      const auto bytes = PartPool::memory_of(*kept);
      ASSERT_EQ(bytes.front(), static_cast<std::byte>(each));
      ASSERT_EQ(bytes.back(), static_cast<std::byte>(each));
      held_bytes += bytes.size();
    }
    ASSERT_EQ(pool_.counters().held_bytes, held_bytes);
    ASSERT_LE(pool_.counters().bytes, pool_bytes);
  }
}

}  // namespace
}  // namespace terrace::node
