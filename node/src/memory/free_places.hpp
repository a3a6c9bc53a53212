// Which bytes of a range are free: the first place that is large enough is taken.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace terrace::node {

/// Threads  one at a time
class FreePlaces {
 public:
  static constexpr std::uint64_t alignment = 64;

  explicit FreePlaces(std::uint64_t bytes) : free_{{0, bytes}}, bytes_(bytes) {}

  [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t bytes) {
    bytes = rounded(bytes);
    for (auto place = free_.begin(); place != free_.end(); ++place) {
      if (place->second < bytes) continue;
      const auto [begin, size] = *place;
      free_.erase(place);
      if (size > bytes) free_.emplace(begin + bytes, size - bytes);
      return begin;
    }
    return std::nullopt;
  }

  void give_back(std::uint64_t begin, std::uint64_t bytes) {
    bytes = rounded(bytes);
    auto next = free_.lower_bound(begin);
    if (next != free_.end() && next->first == begin + bytes) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin) {
        before->second += bytes;
        return;
      }
    }
    free_.emplace_hint(next, begin, bytes);
  }

  [[nodiscard]] bool all_free() const noexcept {
    return free_.size() == 1 && free_.begin()->second == bytes_;
  }

  [[nodiscard]] static std::uint64_t rounded(std::uint64_t bytes) noexcept {
    return (bytes + alignment - 1) / alignment * alignment;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  ///< begin, bytes
  std::uint64_t bytes_;
};

}  // namespace terrace::node
