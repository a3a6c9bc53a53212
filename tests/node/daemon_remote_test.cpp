// A daemon with servers behind its file: chunks that one node publishes are found on another.
#include "node/made_node.hpp"
#include "redis/redis_server.hpp"

namespace terrace::node {
namespace {

using redis::RedisServer;

class DaemonRemote : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!redis::is_installed()) GTEST_SKIP() << "no redis-tools on this machine";
    server_.emplace();
  }
  DaemonOptions options(const NodePlace& place) const {
    DaemonOptions options = place.options();
    options.remote = {.url = "redis://" + server_->address().text(),
                      .deadline = std::chrono::seconds{30}};
    return options;
  }
  /// Has a node of its own publish chunks, and the servers have them.
  void publish_elsewhere(std::span<const tiers::ChunkKey> keys, const std::string& salt) {
    const NodePlace place;
    const RunningDaemon daemon(options(place));
    const auto client = place.client(salt);
    for (const tiers::ChunkKey& key : keys) ASSERT_TRUE(publish(*client, key));
    wait_for_counter(*client, "remote.written", keys.size());
  }

  std::optional<RedisServer> server_;
  NodePlace place_;
};

TEST_F(DaemonRemote, FindsWhatAnotherNodePublished) {
  const auto keys = some_keys(3);
  publish_elsewhere(keys, "mine");
  const RunningDaemon daemon(options(place_));
  const auto client = place_.client("mine");
  EXPECT_TRUE(find(*place_.client("yours"), keys).run.empty());
  EXPECT_TRUE(find(*place_.client(), keys).run.empty());
  for (const auto outcome : {tiers::LookUpOutcome::hit_remote, tiers::LookUpOutcome::hit_nvme}) {
    const DaemonLookUp found = find(*client, keys);
    EXPECT_EQ(found.outcome, outcome);
    ASSERT_EQ(found.run.size(), keys.size());
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(read_rows(*client, found, i).value(), rows_of(keys[i]));
    }
  }
  EXPECT_EQ(counter(*client, "remote.read"), keys.size());
}

TEST_F(DaemonRemote, KeepsChunksThatComeUpWithinTheirTenantsQuota) {
  const auto keys = some_keys(6);
  publish_elsewhere(keys, "mine");
  DaemonOptions limited = options(place_);
  const std::uint64_t chunk_bytes = row_bytes + 1;
  limited.quotas.of_each = 2 * chunk_bytes;
  const RunningDaemon daemon(limited);
  const auto client = place_.client("mine");
  const auto other = place_.client("yours");
  ASSERT_TRUE(publish(*other, some_keys(1, 50)[0]));
  {
    const DaemonLookUp found = find(*client, std::span(keys).first(4));
    EXPECT_EQ(found.run.size(), 2U) << "the others have no room beside them";
    EXPECT_EQ(counter(*client, "chunks.bytes"), 3 * chunk_bytes);
  }
  // Its own chunks go for those that it asks for now, and nobody else's.
  const DaemonLookUp found = find(*client, std::span(keys).last(2));
  EXPECT_EQ(found.run.size(), 2U);
  EXPECT_EQ(read_rows(*client, found, 1).value(), rows_of(keys.back()));
  EXPECT_EQ(counter(*client, "chunks.bytes"), 3 * chunk_bytes);
  EXPECT_EQ(find(*other, some_keys(1, 50)).run.size(), 1U);
  EXPECT_GT(counter(*client, "look_ups.partial"), 0U);
}

TEST_F(DaemonRemote, BringsUpAgainWhatItsFileHasEvicted) {
  const auto keys = some_keys(4);
  publish_elsewhere(keys, "");
  DaemonOptions limited = options(place_);
  limited.quotas.of_each = 2 * (row_bytes + 1);
  const RunningDaemon daemon(limited);
  const auto client = place_.client();
  for (int round = 0; round < 2; ++round) {
    for (const auto& pair : {std::span(keys).first(2), std::span(keys).last(2)}) {
      const DaemonLookUp found = find(*client, pair);
      EXPECT_EQ(found.outcome, tiers::LookUpOutcome::hit_remote) << round;
      EXPECT_EQ(found.run.size(), 2U);
    }
  }
}

TEST_F(DaemonRemote, BringsTheLastChunkThatIsAskedFor) {
  const auto keys = some_keys(3);
  publish_elsewhere(std::span(keys).first(2), "");
  const RunningDaemon daemon(options(place_));
  const auto client = place_.client();
  EXPECT_TRUE(client->lease(keys).value().chunks.empty());
  const DaemonLeased last = client->lease(keys, /*brings_last=*/true).value();
  ASSERT_EQ(last.chunks.size(), 1U);
  EXPECT_EQ(last.chunks[0].key, keys[1]);
  EXPECT_EQ(counter(*client, "remote.read"), 1U);
}

TEST_F(DaemonRemote, GoesOnWithoutItsServers) {
  const auto keys = some_keys(3);
  publish_elsewhere(std::span(keys).first(1), "");
  server_->kill();
  const RunningDaemon daemon(options(place_));
  const auto client = place_.client();
  EXPECT_TRUE(find(*client, keys).run.empty());
  for (const tiers::ChunkKey& key : keys) ASSERT_TRUE(publish(*client, key));
  EXPECT_EQ(find(*client, keys).run.size(), keys.size());
}

TEST_F(DaemonRemote, IsRefusedWithAUrlThatIsNone) {
  DaemonOptions wrong = options(place_);
  wrong.remote.url = "http://nowhere";
  const auto opened = Daemon::open(wrong);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::invalid_argument);
}

}  // namespace
}  // namespace terrace::node
