#include "sealed_block.hpp"

#include <xxhash.h>

#include <cstring>

namespace terrace::offload {
namespace {

std::uint64_t checksum(std::span<const std::byte> block) noexcept {
  return XXH3_64bits(block.data() + seal_bytes, block.size() - seal_bytes);
}

}  // namespace

void seal(std::span<std::byte> block) noexcept {
  const std::uint64_t sum = checksum(block);
  std::memcpy(block.data(), &sum, seal_bytes);
}

bool is_sealed(std::span<const std::byte> block) noexcept {
  std::uint64_t sum = 0;
  std::memcpy(&sum, block.data(), seal_bytes);
  return sum == checksum(block);
}

}  // namespace terrace::offload
