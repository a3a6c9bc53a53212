// Memory of the host in place of a device's: an op that is made of both kinds gives what is
// expected.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace::bench {

/// The part of MeasuredDevice that ops are made with.
class HostPlace {
 public:
  template <typename T>
  Result<T*> room_for(std::size_t count) {
    return reinterpret_cast<T*>(memory_.emplace_back(count * sizeof(T)).data());
  }
  template <typename T>
  Result<T*> copy_of(std::span<const T> given) {
    TERRACE_ASSIGN(T* const target, room_for<T>(given.size()));
    std::ranges::copy(given, target);
    return target;
  }
  template <typename T>
  Result<T*> copy_of(const std::vector<T>& given) {
    return copy_of(std::span<const T>(given));
  }

 private:
  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace terrace::bench
