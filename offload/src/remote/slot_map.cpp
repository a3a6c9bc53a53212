#include "slot_map.hpp"

#include <algorithm>

namespace terrace::offload {
namespace {

constexpr std::array<std::uint16_t, 256> crc16_table() {
  constexpr unsigned polynomial = 0x1021;
  std::array<std::uint16_t, 256> table{};
  for (unsigned byte = 0; byte < table.size(); ++byte) {
    unsigned crc = byte << 8U;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 0x8000U) != 0 ? crc << 1U ^ polynomial : crc << 1U;
    }
    table.at(byte) = static_cast<std::uint16_t>(crc);
  }
  return table;
}

std::string_view tagged(std::string_view key) noexcept {
  const std::size_t begin = key.find('{');
  if (begin == std::string_view::npos) return key;
  const std::size_t end = key.find('}', begin + 1);
  if (end == std::string_view::npos || end == begin + 1) return key;
  return key.substr(begin + 1, end - begin - 1);
}

}  // namespace

std::uint16_t slot_of(std::string_view key) noexcept {
  static constexpr std::array<std::uint16_t, 256> table = crc16_table();
  unsigned crc = 0;
  for (const char c : tagged(key)) {
    const unsigned index = (crc >> 8U ^ static_cast<unsigned char>(c)) & 0xffU;
    crc = (crc << 8U ^ table[index]) & 0xffffU;
  }
  return static_cast<std::uint16_t>(crc % slot_count);
}

std::uint16_t SlotMap::number_of(const RemoteAddress& node) {
  const auto found = std::ranges::find(nodes_, node);
  const auto number = static_cast<std::uint16_t>(found - nodes_.begin());
  if (found == nodes_.end()) nodes_.push_back(node);
  return number;
}

void SlotMap::assign(std::span<const SlotRange> ranges) {
  owners_ = filled_with_nobody();
  nodes_.clear();
  for (const SlotRange& range : ranges) {
    if (range.last >= slot_count || range.first > range.last) continue;
    std::fill(owners_.begin() + range.first, owners_.begin() + range.last + 1,
              number_of(range.node));
  }
}

void SlotMap::move(std::uint16_t slot, const RemoteAddress& node) {
  if (slot < slot_count) owners_[slot] = number_of(node);
}

const RemoteAddress* SlotMap::find(std::uint16_t slot) const noexcept {
  const std::uint16_t owner = slot < slot_count ? owners_[slot] : nobody;
  return owner == nobody ? nullptr : &nodes_[owner];
}

bool SlotMap::has(const RemoteAddress& node) const noexcept {
  return std::ranges::find(nodes_, node) != nodes_.end();
}

}  // namespace terrace::offload
