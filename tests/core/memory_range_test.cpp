// Which bytes arguments cover.
#include "terrace/core/memory_range.hpp"

#include <gtest/gtest.h>

#include <array>

namespace terrace {
namespace {

TEST(MemoryRange, OverlapsWhereAByteIsShared) {
  std::array<std::uint32_t, 8> words{};
  const MemoryRange middle = range_of(&words[2], 3);
  EXPECT_TRUE(overlap(middle, middle));
  EXPECT_TRUE(overlap(middle, range_of(words.data(), 8)));
  EXPECT_TRUE(overlap(range_of(words.data(), 8), middle));
  EXPECT_TRUE(overlap(middle, range_of(words.data(), 3)));
  EXPECT_TRUE(overlap(middle, range_of(reinterpret_cast<const char*>(&words[5]) - 1, 9)));
  EXPECT_FALSE(overlap(middle, range_of(words.data(), 2)));
  EXPECT_FALSE(overlap(middle, range_of(&words[5], 3)));
}

TEST(MemoryRange, OfNothingOverlapsNothing) {
  std::array<std::uint32_t, 8> words{};
  const MemoryRange all = range_of(words.data(), 8);
  EXPECT_FALSE(overlap(all, range_of(&words[3], 0)));
  EXPECT_FALSE(overlap(range_of(&words[3], 0), all));
  EXPECT_FALSE(overlap(all, range_of<std::uint32_t>(nullptr, 1 << 20)));
}

TEST(MemoryRange, EndsWithTheAddressesWhereASizeIsAbsurd) {
  std::array<std::uint32_t, 8> words{};
  const MemoryRange absurd = range_of(&words[4], std::size_t{1} << 62);
  EXPECT_TRUE(overlap(absurd, range_of(&words[7], 1)));
  EXPECT_FALSE(overlap(absurd, range_of(words.data(), 4)));
}

}  // namespace
}  // namespace terrace
