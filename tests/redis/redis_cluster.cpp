#include "redis/redis_cluster.hpp"

#include <algorithm>

namespace terrace::redis {
namespace {

constexpr int slots = 16'384;

int first_slot(std::size_t master) {
  return static_cast<int>(master * slots / RedisCluster::masters);
}

bool says(RedisServer& node, const std::string& text) {
  return node.client().ask({"CLUSTER", "INFO"}).find(text) != std::string::npos;
}

}  // namespace

RedisCluster::RedisCluster(std::size_t replicas) {
  for (std::size_t i = 0; i < masters + replicas; ++i) {
    nodes_.push_back(std::make_unique<RedisServer>(RedisServerOptions{.is_of_cluster = true}));
    ids_.push_back(nodes_.back()->client().ask({"CLUSTER", "MYID"}));
  }
  share_slots();
  meet();
  for (std::size_t i = masters; i < nodes_.size(); ++i) {
    node(i).client().ask({"CLUSTER", "REPLICATE", id(0)});
    wait_until(
        [&] {
          const std::string info = node(i).client().ask({"INFO", "replication"});
          return info.find("master_link_status:up") != std::string::npos;
        },
        "a replica is linked to its master");
  }
}

void RedisCluster::share_slots() {
  for (std::size_t i = 0; i < masters; ++i) {
    RedisClient client = node(i).client();
    client.ask({"CLUSTER", "ADDSLOTSRANGE", std::to_string(first_slot(i)),
                std::to_string(first_slot(i + 1) - 1)});
    client.ask({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
  }
}

void RedisCluster::meet() {
  for (std::size_t i = 1; i < nodes_.size(); ++i) {
    node(0).client().ask({"CLUSTER", "MEET", "127.0.0.1", std::to_string(node(i).port()),
                          std::to_string(node(i).bus_port())});
  }
  const std::string all = "cluster_known_nodes:" + std::to_string(nodes_.size());
  wait_until(
      [&] {
        return std::ranges::all_of(nodes_, [&](const auto& each) {
          return says(*each, "cluster_state:ok") && says(*each, all);
        });
      },
      "all nodes of the cluster are ready");
}

std::size_t RedisCluster::master_of(std::uint16_t slot) noexcept {
  std::size_t master = 0;
  while (master + 1 < masters && slot >= first_slot(master + 1)) ++master;
  return master;
}

void RedisCluster::begin_to_move(std::uint16_t slot, std::size_t from, std::size_t to) {
  const std::string number = std::to_string(slot);
  node(to).client().ask({"CLUSTER", "SETSLOT", number, "IMPORTING", id(from)});
  node(from).client().ask({"CLUSTER", "SETSLOT", number, "MIGRATING", id(to)});
}

std::size_t RedisCluster::move_keys(std::uint16_t slot, std::size_t from, std::size_t to,
                                    std::size_t count) {
  RedisClient client = node(from).client();
  std::size_t moved = 0;
  for (; moved < count; ++moved) {
    const std::string key =
        client.first_of({"CLUSTER", "GETKEYSINSLOT", std::to_string(slot), "1"});
    if (key.empty()) break;
    client.ask({"MIGRATE", "127.0.0.1", std::to_string(node(to).port()), key, "0", "30000"});
  }
  return moved;
}

void RedisCluster::end_moving(std::uint16_t slot, std::size_t to) {
  const std::string number = std::to_string(slot);
  node(to).client().ask({"CLUSTER", "SETSLOT", number, "NODE", id(to)});
  for (std::size_t i = 0; i < masters; ++i) {
    if (i != to) node(i).client().ask({"CLUSTER", "SETSLOT", number, "NODE", id(to)});
  }
}

}  // namespace terrace::redis
