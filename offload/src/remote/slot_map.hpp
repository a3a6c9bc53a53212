// Which node of a Redis Cluster has which key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "terrace/offload/remote_store.hpp"

namespace terrace::offload {

inline constexpr std::size_t slot_count = 16'384;

/// Returns the slot of a key: CRC16 (XMODEM) of it or, where it has a hash tag, of what stands
/// between its first { and the next }.
[[nodiscard]] std::uint16_t slot_of(std::string_view key) noexcept;

/// Slots from `first` to `last`, and the node that takes reads and writes of them.
struct SlotRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  RemoteAddress node;
  bool operator==(const SlotRange&) const = default;
};

/// Threads  one at a time
class SlotMap {
 public:
  /// Takes the place of what it knew. Ranges that reach beyond the last slot are left out.
  void assign(std::span<const SlotRange> ranges);
  /// One slot has moved.
  void move(std::uint16_t slot, const RemoteAddress& node);

  /// Returns the node of a slot, or null where it has none.
  [[nodiscard]] const RemoteAddress* find(std::uint16_t slot) const noexcept;
  /// Whether some slot is this node's.
  [[nodiscard]] bool has(const RemoteAddress& node) const noexcept;

 private:
  std::uint16_t number_of(const RemoteAddress& node);

  static constexpr std::uint16_t nobody = 0xffff;
  std::array<std::uint16_t, slot_count> owners_ = filled_with_nobody();
  std::vector<RemoteAddress> nodes_;

  static constexpr std::array<std::uint16_t, slot_count> filled_with_nobody() {
    std::array<std::uint16_t, slot_count> owners{};
    owners.fill(nobody);
    return owners;
  }
};

}  // namespace terrace::offload
