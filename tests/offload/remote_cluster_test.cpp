// A store on a cluster of three nodes, which the tests start.
#include "offload/remote_pages.hpp"
#include "redis/redis_cluster.hpp"
#include "remote/page_commands.hpp"

namespace terrace::offload {
namespace {

using redis::RedisCluster;
using redis::wait_until;

constexpr std::size_t page_bytes_each = 3000;

class RemoteClusterTest : public RemoteTest {
 protected:
  static std::uint16_t slot_of_key(std::uint64_t key) { return slot_of(name_of(key)); }

  /// Returns the first keys whose slot a master had at the beginning.
  static std::vector<std::uint64_t> keys_of(std::size_t master, std::size_t count) {
    std::vector<std::uint64_t> keys;
    for (std::uint64_t key = 0; keys.size() < count; ++key) {
      if (RedisCluster::master_of(slot_of_key(key)) == master) keys.push_back(key);
    }
    return keys;
  }
  static PageBytes page_at(std::uint64_t key) { return page_of(key, page_bytes_each); }
};

TEST_F(RemoteClusterTest, SpreadsPagesOverTheNodes) {
  RedisCluster cluster;
  const auto store = opened(patient(cluster.node(1).address()));
  for (std::uint64_t key = 0; key < 300; ++key) ASSERT_TRUE(put_page(*store, key, page_at(key)));
  for (std::uint64_t key = 0; key < 300; ++key) {
    ASSERT_EQ(get_page(*store, key, page_bytes_each).value(), page_at(key));
  }
  EXPECT_TRUE(store->state().is_cluster);
  EXPECT_EQ(store->state().nodes, 3U);
  EXPECT_EQ(store->state().redirects, 0U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GT(std::stoi(cluster.node(i).client().ask({"DBSIZE"})), 50);
  }
}

TEST_F(RemoteClusterTest, ReadsWhileASlotMoves) {
  RedisCluster cluster;
  RemoteStoreOptions options = patient(cluster.node(0).address());
  options.key_prefix = "{moves}terrace:";  // all in one slot
  const std::uint16_t slot = slot_of(options.key_prefix);
  const std::size_t from = RedisCluster::master_of(slot);
  const std::size_t to = (from + 1) % 3;
  const auto store = opened(options);
  constexpr std::uint64_t count = 40;
  for (std::uint64_t key = 0; key < count; ++key) ASSERT_TRUE(put_page(*store, key, page_at(key)));
  const auto all_are_there = [&] {
    for (std::uint64_t key = 0; key < count; ++key) {
      ASSERT_EQ(get_page(*store, key, page_bytes_each).value(), page_at(key));
    }
  };
  cluster.begin_to_move(slot, from, to);
  all_are_there();
  EXPECT_EQ(store->state().redirects, 0U);
  ASSERT_EQ(cluster.move_keys(slot, from, to, count / 2), count / 2);
  all_are_there();  // half of them by ASK
  EXPECT_EQ(store->state().redirects, count / 2);
  ASSERT_TRUE(put_page(*store, count, page_at(count)));  // a new page goes to the new node
  EXPECT_EQ(get_page(*store, count, page_bytes_each).value(), page_at(count));
  EXPECT_TRUE(erase_page(*store, count));
  cluster.move_keys(slot, from, to, 2 * count);
  cluster.end_moving(slot, to);
  all_are_there();  // by MOVED
  const std::uint64_t redirects = store->state().redirects;
  all_are_there();
  EXPECT_EQ(store->state().redirects, redirects);
  EXPECT_EQ(cluster.node(from).client().ask({"DBSIZE"}), "0");
}

TEST_F(RemoteClusterTest, ANodeThatIsKilledTakesItsPagesAndNoOthers) {
  RedisCluster cluster;
  const auto store = opened(patient(cluster.node(0).address()));
  for (std::uint64_t key = 0; key < 300; ++key) ASSERT_TRUE(put_page(*store, key, page_at(key)));
  // The others go on serving without it.
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.node(i).client().ask({"CONFIG", "SET", "cluster-require-full-coverage", "no"});
  }
  std::vector<PageBytes> found(300, PageBytes(page_bytes_each));
  std::vector<PageRequest> gets;
  for (std::uint64_t key = 0; key < 300; ++key) {
    gets.push_back({.verb = PageVerb::get,
                    .key = {.low = key},
                    .data = found[key].data(),
                    .bytes = page_bytes_each,
                    .status = {}});
  }
  cluster.node(1).stop();  // amid the batch
  const auto ticket = store->submit(gets);
  ASSERT_TRUE(ticket);
  cluster.node(1).kill();
  ASSERT_TRUE(ticket->done.wait(long_enough));
  for (std::uint64_t key = 0; key < 300; ++key) {
    if (RedisCluster::master_of(slot_of_key(key)) == 1) {
      ASSERT_FALSE(gets[key].status);
      EXPECT_THAT(gets[key].status.error().code, testing::AnyOf(Errc::io_error, Errc::not_ready));
    } else {
      ASSERT_TRUE(gets[key].status) << gets[key].status.error().message();
      ASSERT_EQ(found[key], page_at(key));
    }
  }
}

TEST_F(RemoteClusterTest, AReplicaThatTakesOverServesThePages) {
  RedisCluster cluster(1);
  const auto store = opened(patient(cluster.node(1).address()));
  const std::vector<std::uint64_t> keys = keys_of(0, 20);
  for (const std::uint64_t key : keys) ASSERT_TRUE(put_page(*store, key, page_at(key)));
  cluster.node(0).client().ask({"WAIT", "1", "0"});
  wait_until([&] { return cluster.node(3).client().ask({"DBSIZE"}) == "20"; },
             "the replica has all");
  cluster.node(0).kill();
  cluster.node(3).client().ask({"CLUSTER", "FAILOVER", "TAKEOVER"});
  wait_until([&] { return get_page(*store, keys[0], page_bytes_each).has_value(); },
             "the store finds the new node");
  for (const std::uint64_t key : keys) {
    wait_until([&] { return get_page(*store, key, page_bytes_each).has_value(); }, "a page");
    EXPECT_EQ(get_page(*store, key, page_bytes_each).value(), page_at(key));
  }
  EXPECT_TRUE(put_page(*store, keys[0], page_at(7)));
}

TEST_F(RemoteClusterTest, BeginsWithAnyNodeThatAnswers) {
  RedisCluster cluster;
  RemoteStoreOptions options = patient({.host = "127.0.0.1", .port = 1});
  options.server.addresses.push_back(cluster.node(2).address());
  const auto store = opened(options);
  EXPECT_TRUE(put_page(*store, keys_of(0, 1)[0], page_at(0)));
}

}  // namespace
}  // namespace terrace::offload
