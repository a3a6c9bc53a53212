// An array between guard bytes: a write beside it is found.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace terrace::testing {

template <typename T>
class Guarded {
 public:
  explicit Guarded(std::size_t count, T value = {})
      : count_(count), bytes_(count * sizeof(T) + 2 * guard_bytes, guard) {
    std::fill_n(data(), count, value);
  }

  [[nodiscard]] T* data() noexcept { return reinterpret_cast<T*>(bytes_.data() + guard_bytes); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::span<T> span() noexcept { return {data(), count_}; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data()[i]; }

  [[nodiscard]] bool intact() const {
    const auto is_guard = [](std::byte b) { return b == guard; };
    return std::all_of(bytes_.begin(), bytes_.begin() + guard_bytes, is_guard) &&
           std::all_of(bytes_.end() - guard_bytes, bytes_.end(), is_guard);
  }

  [[nodiscard]] bool same_bits(Guarded& other) {
    return count_ == other.count_ && std::memcmp(data(), other.data(), count_ * sizeof(T)) == 0;
  }

 private:
  static constexpr std::ptrdiff_t guard_bytes = 128;
  static constexpr std::byte guard{0xa5};

  std::size_t count_;
  std::vector<std::byte> bytes_;
};

}  // namespace terrace::testing
