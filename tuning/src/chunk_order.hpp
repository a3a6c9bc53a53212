// The chunks that a tier has, in the order of their last use.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "terrace/core/function_ref.hpp"

namespace terrace::tuning {

class ChunkOrder {
 public:
  explicit ChunkOrder(std::uint64_t room) noexcept : room_(room) {}

  [[nodiscard]] bool has(std::uint32_t chunk) const { return places_.contains(chunk); }
  [[nodiscard]] std::uint64_t size() const noexcept { return places_.size(); }
  [[nodiscard]] std::uint64_t room() const noexcept { return room_; }
  [[nodiscard]] bool is_full() const noexcept { return size() >= room_; }

  /// Makes a chunk that is there the one that was used last.
  void use(std::uint32_t chunk) { order_.splice(order_.end(), order_, places_.at(chunk)); }

  /// Takes up a chunk that is not there, as the one that was used last.
  void add(std::uint32_t chunk) { places_.emplace(chunk, order_.insert(order_.end(), chunk)); }

  /// Gives up the chunk that was used longest ago among those that may go. Returns whether there
  /// was one.
  bool evict(FunctionRef<bool(std::uint32_t chunk)> may_go) {
    for (auto place = order_.begin(); place != order_.end(); ++place) {
      if (!may_go(*place)) continue;
      places_.erase(*place);
      order_.erase(place);
      return true;
    }
    return false;
  }

 private:
  std::uint64_t room_;
  std::list<std::uint32_t> order_;
  std::unordered_map<std::uint32_t, std::list<std::uint32_t>::iterator> places_;
};

}  // namespace terrace::tuning
