// Free address ranges, found by best fit and merged with their neighbours.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace terrace::offload {

class FreeRanges {
 public:
  /// Takes an aligned range out of the smallest free one that holds it; null when none does.
  std::byte* take(std::size_t bytes, std::size_t alignment);

  /// Gives a range back. It merges with free neighbours within `region` only: regions that happen
  /// to lie side by side are unmapped one by one.
  void put(std::byte* data, std::size_t bytes, std::span<std::byte> region);

  /// Removes `region` if all of it is free. Returns whether it was.
  bool remove_whole(std::span<std::byte> region);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  using ByAddress = std::map<std::byte*, std::size_t>;

  void insert(std::byte* data, std::size_t bytes);
  void erase(ByAddress::iterator range);

  ByAddress by_address_;
  std::set<std::pair<std::size_t, std::byte*>> by_size_;
  std::size_t bytes_ = 0;
};

}  // namespace terrace::offload
