// A cluster that a test has for itself: three nodes with a third of the slots each, and replicas of
// the first.
#pragma once

#include <memory>
#include <vector>

#include "redis/redis_server.hpp"

namespace terrace::redis {

class RedisCluster {
 public:
  static constexpr std::size_t masters = 3;

  /// Returns when all nodes know each other, and serve all slots.
  explicit RedisCluster(std::size_t replicas = 0);

  /// Masters first.
  [[nodiscard]] RedisServer& node(std::size_t number) { return *nodes_.at(number); }
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
  /// Returns the number of the master that had a slot at the beginning.
  [[nodiscard]] static std::size_t master_of(std::uint16_t slot) noexcept;
  [[nodiscard]] const std::string& id(std::size_t number) const { return ids_.at(number); }

  /// Says of a slot that it moves; its keys move one by one with move_keys().
  void begin_to_move(std::uint16_t slot, std::size_t from, std::size_t to);
  /// Moves up to `count` of the keys of a slot. Returns how many.
  std::size_t move_keys(std::uint16_t slot, std::size_t from, std::size_t to, std::size_t count);
  /// Says that all of a slot has moved, to all nodes.
  void end_moving(std::uint16_t slot, std::size_t to);

 private:
  void share_slots();
  void meet();

  std::vector<std::unique_ptr<RedisServer>> nodes_;
  std::vector<std::string> ids_;
};

}  // namespace terrace::redis
