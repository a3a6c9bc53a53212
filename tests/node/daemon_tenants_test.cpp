// Tenants: what one salt stores no other one finds, and quotas.
#include <gmock/gmock.h>

#include "node/made_node.hpp"

namespace terrace::node {
namespace {

using tiers::LookUpOutcome;

const std::vector<std::string> salts{
    "", "a", "b", "ab", std::string("a\0", 2), std::string(1024, 'x')};

/// `sha256("salt")`, by coreutils' sha256sum.
constexpr const char* digest_of_salt =
    "63479ad69a090b258277ec8fba6f99419a2ffb248981510657c944ccd1148e97";

TEST(DaemonTenants, SaltsAreApartInEachPairAlsoAfterARestart) {
  NodePlace place;
  const auto keys = some_keys(2);
  {
    RunningDaemon daemon(place.options());
    for (std::uint64_t i = 0; i < salts.size(); ++i) {
      const auto client = place.client(salts[i]);
      EXPECT_EQ(find(*client, keys).run.size(), 0U) << i;  // of those before, none
      ASSERT_TRUE(publish(*client, keys[0], nullptr, i));
    }
  }
  RunningDaemon daemon(place.options());
  std::vector<std::unique_ptr<DaemonClient>> clients;
  std::vector<DaemonLookUp> found;
  for (const std::string& salt : salts) {
    clients.push_back(place.client(salt));
    found.push_back(find(*clients.back(), keys));
  }
  for (std::uint64_t i = 0; i < salts.size(); ++i) {
    EXPECT_EQ(found[i].outcome, LookUpOutcome::partial);
    EXPECT_EQ(read_rows(*clients[i], found[i], 0).value(), rows_of(keys[0], i)) << i;
  }
  EXPECT_EQ(counter(*clients[0], "tenants"), salts.size());
}

/// Quotas tell 62 salts apart. Memory has to tell all of them.
TEST(DaemonTenants, ManyTenantsShareNoMemory) {
  constexpr std::uint64_t tenants = 80;
  constexpr std::uint64_t segments = 16;  // there may be in the memory
  NodePlace place;
  RunningDaemon daemon(place.options());
  const auto keys = some_keys(1);
  for (std::uint64_t i = 0; i < tenants; ++i) {
    const auto client = place.client("salt " + std::to_string(i));
    ASSERT_TRUE(publish(*client, keys[0], nullptr, i));
    const DaemonLookUp found = find(*client, keys);
    EXPECT_EQ(read_rows(*client, found, 0).value(), rows_of(keys[0], i)) << i;
  }
  const auto client = place.client();
  EXPECT_EQ(counter(*client, "memory.bytes"), place.options().memory);
  EXPECT_EQ(counter(*client, "memory.segments_retired"), tenants - segments);
}

TEST(DaemonTenants, APinIsOfItsTenantAlone) {
  NodePlace place;
  RunningDaemon daemon(place.options());
  const auto one = place.client("one");
  const auto two = place.client("two");
  const auto key = some_keys(1)[0];
  ASSERT_TRUE(publish(*one, key));
  EXPECT_EQ(two->pin(key).error().code, Errc::invalid_argument);
  EXPECT_TRUE(one->pin(key));
  EXPECT_EQ(two->unpin(key).error().code, Errc::invalid_argument);
}

TEST(DaemonTenants, AQuotaIsKeptByEvictingTheTenantsOwnChunks) {
  NodePlace place;
  DaemonOptions options = place.options();
  const std::uint64_t chunk_bytes = row_bytes + 1;
  options.quotas.by_name["63479ad6"] = 5 * chunk_bytes;
  RunningDaemon daemon(options);
  const auto small = place.client("salt");
  const auto large = place.client("other");
  const auto keys = some_keys(20);
  for (const auto& key : keys) {
    ASSERT_TRUE(publish(*large, key));
    ASSERT_TRUE(publish(*small, key));
    EXPECT_LE(counter(*small, "chunks.bytes"), (keys.size() + 5) * chunk_bytes);
  }
  EXPECT_EQ(find(*large, keys).run.size(), keys.size());
  EXPECT_EQ(find(*small, keys).outcome, LookUpOutcome::miss_evicted);
  EXPECT_EQ(find(*small, std::span(keys).last(5)).run.size(), 5U);
}

TEST(DaemonTenants, ChunksOfBeforeARestartCountForTheirTenant) {
  NodePlace place;
  const auto keys = some_keys(4);
  {
    RunningDaemon daemon(place.options());
    for (const char* const salt : {"", "salt", "other"}) {
      for (const auto& key : keys) ASSERT_TRUE(publish(*place.client(salt), key));
    }
  }
  DaemonOptions options = place.options();
  options.quotas.of_each = 4 * (row_bytes + 1);
  RunningDaemon daemon(options);
  for (const char* const salt : {"salt", ""}) {
    ASSERT_TRUE(publish(*place.client(salt), some_keys(1, 50)[0]));
  }
  for (const char* const salt : {"salt", ""}) {
    std::size_t left = 0;
    for (const auto& key : keys) left += find(*place.client(salt), {&key, 1}).run.size();
    EXPECT_EQ(left, keys.size() - 1) << salt;
  }
  EXPECT_EQ(find(*place.client("other"), keys).run.size(), keys.size());
}

TEST(DaemonTenants, LeasedChunksDoNotMakeRoomInAQuota) {
  NodePlace place;
  DaemonOptions options = place.options();
  options.quotas.of_each = 2 * (row_bytes + 1);
  RunningDaemon daemon(options);
  const auto client = place.client();
  const auto keys = some_keys(3);
  DaemonLease lease;
  ASSERT_TRUE(publish(*client, keys[0], &lease));
  ASSERT_TRUE(publish(*client, keys[1], &lease));
  EXPECT_EQ(publish(*client, keys[2]).error().code, Errc::out_of_memory);
  lease = {};
  EXPECT_TRUE(publish(*client, keys[2]));
}

TEST(DaemonTenants, QuotasThatAreReadAgainHoldAtOnce) {
  NodePlace place;
  DaemonOptions options = place.options();
  options.read_quotas = [] { return TenantQuotas{.of_each = 3 * (row_bytes + 1)}; };
  RunningDaemon daemon(options);
  const auto client = place.client("salt");
  for (const auto& key : some_keys(8)) ASSERT_TRUE(publish(*client, key));
  daemon->reload();
  wait_for_counter(*client, "chunks", 3);
  EXPECT_EQ(find(*client, some_keys(3, 6)).run.size(), 3U);
}

TEST(DaemonTenants, TheLogNamesATenantByTheDigestOfItsSalt) {
  NodePlace place;
  RunningDaemon daemon(place.options());
  ASSERT_TRUE(place.client("salt")->connect());
  ASSERT_TRUE(place.client()->connect());
  EXPECT_THAT(daemon.lines(),
              ::testing::HasSubstr("tenant=" + std::string(digest_of_salt).substr(0, 16)));
  EXPECT_THAT(daemon.lines(), ::testing::HasSubstr("tenant=none"));
}

}  // namespace
}  // namespace terrace::node
