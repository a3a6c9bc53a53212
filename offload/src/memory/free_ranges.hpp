// Free ranges of addresses, of memory or of a file, found by best fit and merged with their
// neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "terrace/core/bytes.hpp"

namespace terrace::offload {

/// An Address is a pointer to bytes, or a number of bytes.
template <typename Address>
class FreeRanges {
 public:
  /// A range that is given back merges within one.
  struct Region {
    Address begin = {};
    std::size_t bytes = 0;
  };

  /// Takes an aligned range out of the smallest free one that holds it; nothing when none does.
  std::optional<Address> take(std::size_t bytes, std::size_t alignment) {
    for (auto fit = by_size_.lower_bound({bytes, Address{}}); fit != by_size_.end(); ++fit) {
      const auto [size, begin] = *fit;
      const std::size_t padding = padding_of(begin, alignment);
      if (size < padding || size - padding < bytes) continue;
      erase(by_address_.find(begin));
      if (padding != 0) insert(begin, padding);
      if (size > padding + bytes) insert(begin + padding + bytes, size - padding - bytes);
      return begin + padding;
    }
    return std::nullopt;
  }

  /// Gives a range back. It merges with free neighbours within `region` only: regions that happen
  /// to lie side by side are unmapped one by one.
  void put(Address begin, std::size_t bytes, const Region& region) {
    const auto after = by_address_.lower_bound(begin);
    if (after != by_address_.begin()) {
      const auto before = std::prev(after);
      if (before->first >= region.begin && before->first + before->second == begin) {
        begin = before->first;
        bytes += before->second;
        erase(before);
      }
    }
    if (after != by_address_.end() && after->first == begin + bytes &&
        after->first < region.begin + region.bytes) {
      bytes += after->second;
      erase(after);
    }
    insert(begin, bytes);
  }

  /// Removes `region` if all of it is free. Returns whether it was.
  bool remove_whole(const Region& region) {
    const auto range = by_address_.find(region.begin);
    if (range == by_address_.end() || range->second != region.bytes) return false;
    erase(range);
    return true;
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  using ByAddress = std::map<Address, std::size_t>;

  static std::size_t padding_of(Address begin, std::size_t alignment) {
    if constexpr (std::is_pointer_v<Address>) {
      const auto address = reinterpret_cast<std::uintptr_t>(begin);
      return align_up(address, alignment) - address;
    } else {
      return align_up(begin, alignment) - begin;
    }
  }

  void insert(Address begin, std::size_t bytes) {
    by_address_.emplace(begin, bytes);
    by_size_.emplace(bytes, begin);
    bytes_ += bytes;
  }

  void erase(typename ByAddress::iterator range) {
    bytes_ -= range->second;
    by_size_.erase({range->second, range->first});
    by_address_.erase(range);
  }

  ByAddress by_address_;
  std::set<std::pair<std::size_t, Address>> by_size_;
  std::size_t bytes_ = 0;
};

}  // namespace terrace::offload
