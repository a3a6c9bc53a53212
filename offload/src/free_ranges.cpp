#include "free_ranges.hpp"

#include <cstdint>

#include "terrace/core/bytes.hpp"

namespace terrace::offload {

std::byte* FreeRanges::take(std::size_t bytes, std::size_t alignment) {
  for (auto fit = by_size_.lower_bound({bytes, nullptr}); fit != by_size_.end(); ++fit) {
    const auto [size, begin] = *fit;
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const std::size_t padding = align_up(address, alignment) - address;
    if (size < padding || size - padding < bytes) continue;
    erase(by_address_.find(begin));
    if (padding != 0) insert(begin, padding);
    if (size > padding + bytes) insert(begin + padding + bytes, size - padding - bytes);
    return begin + padding;
  }
  return nullptr;
}

void FreeRanges::put(std::byte* data, std::size_t bytes, std::span<std::byte> region) {
  const auto after = by_address_.lower_bound(data);
  if (after != by_address_.begin()) {
    const auto before = std::prev(after);
    if (before->first >= region.data() && before->first + before->second == data) {
      data = before->first;
      bytes += before->second;
      erase(before);
    }
  }
  if (after != by_address_.end() && after->first == data + bytes &&
      after->first < region.data() + region.size()) {
    bytes += after->second;
    erase(after);
  }
  insert(data, bytes);
}

bool FreeRanges::remove_whole(std::span<std::byte> region) {
  const auto range = by_address_.find(region.data());
  if (range == by_address_.end() || range->second != region.size()) return false;
  erase(range);
  return true;
}

void FreeRanges::insert(std::byte* data, std::size_t bytes) {
  by_address_.emplace(data, bytes);
  by_size_.emplace(bytes, data);
  bytes_ += bytes;
}

void FreeRanges::erase(ByAddress::iterator range) {
  bytes_ -= range->second;
  by_size_.erase({range->second, range->first});
  by_address_.erase(range);
}

}  // namespace terrace::offload
