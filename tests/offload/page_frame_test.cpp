// Values of a server are tested without one.
#include "remote/page_frame.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "terrace/core/rng.hpp"

namespace terrace::offload {
namespace {

constexpr PageKey key{.high = 0x0123456789abcdef, .low = 0xfedcba9876543210};
constexpr PageKey other{.high = 0x0123456789abcdef, .low = 0xfedcba9876543211};

using Bytes = std::vector<std::byte>;

Bytes drawn(std::size_t count, std::uint64_t seed = 1) {
  Rng rng(seed);
  Bytes bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(rng()); });
  return bytes;
}

/// Reads some bytes of a page as a store does; nothing where the value is not what was written.
std::optional<Bytes> read(PageKey of, std::string_view value, const PagePiece& some) {
  const auto bytes = page_bytes(of, value);
  if (!bytes || some.end() > *bytes) return std::nullopt;
  const PagePiece parts = framed_parts(some);
  if (parts.begin > value.size()) return std::nullopt;
  Bytes target(some.bytes);
  const std::string_view text = value.substr(parts.begin, parts.bytes);
  if (!copy_checked(of, *bytes, some, text, target.data())) return std::nullopt;
  return target;
}

std::optional<Bytes> read_all(PageKey of, std::string_view value) {
  const auto bytes = page_bytes(of, value);
  if (!bytes) return std::nullopt;
  Bytes target(*bytes);
  const bool is_right =
      copy_checked(of, *bytes, {0, *bytes}, value.substr(frame_head_bytes), target.data());
  return is_right ? std::optional(target) : std::nullopt;
}

TEST(PageFrame, GivesBackAPageOfAnySize) {
  for (const std::size_t size : {1U, 100U, 65'535U, 65'536U, 65'537U, 200'000U, 1'048'576U}) {
    const Bytes page = drawn(size);
    const std::string value = framed(key, page);
    EXPECT_EQ(value.size(), framed_bytes(size));
    EXPECT_EQ(unframed_bytes(value.size()), size);
    EXPECT_EQ(read_all(key, value), page);
  }
  EXPECT_EQ(unframed_bytes(0), 0U);
  EXPECT_EQ(unframed_bytes(50), 0U);
}

TEST(PageFrame, GivesBackPartsAndLooksAtNoOthers) {
  const Bytes page = drawn(200'000);
  std::string value = framed(key, page);
  Rng rng(2);
  for (int i = 0; i < 200; ++i) {
    const std::size_t begin = rng.below(page.size());
    const std::size_t count = 1 + rng.below(page.size() - begin);
    const auto part = read(key, value, {begin, count});
    ASSERT_TRUE(part);
    ASSERT_TRUE(std::ranges::equal(*part, std::span(page).subspan(begin, count)));
  }
  value[frame_head_bytes + 70'000] ^= 1;
  EXPECT_FALSE(read(key, value, {65'536, 10}));
  EXPECT_TRUE(read(key, value, {0, 65'536}));
  EXPECT_TRUE(read(key, value, {131'072, 10}));
}

TEST(PageFrame, FindsEachBitThatFlips) {
  const Bytes page = drawn(300);
  const std::string value = framed(key, page);
  for (std::size_t bit = 0; bit < value.size() * 8; ++bit) {
    std::string damaged = value;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    ASSERT_FALSE(read_all(key, damaged)) << bit;
    ASSERT_FALSE(read(key, damaged, {7, 200})) << bit;
  }
}

TEST(PageFrame, FindsValuesThatWereCutOrGrew) {
  const Bytes page = drawn(70'000);
  const std::string value = framed(key, page);
  for (const std::size_t size : {0U, 1U, 47U, 48U, 55U, 56U, 60'000U, 65'592U, 65'600U, 70'063U}) {
    EXPECT_FALSE(read_all(key, std::string_view(value).substr(0, size))) << size;
  }
  EXPECT_FALSE(read_all(key, value + "x"));
  EXPECT_FALSE(read(key, std::string_view(value).substr(0, value.size() - 1), {69'999, 1}));
}

TEST(PageFrame, RefusesTheValueOfAnotherKey) {
  const Bytes page = drawn(100);
  const std::string value = framed(other, page);
  EXPECT_EQ(page_bytes(key, value).error().code, Errc::corrupt);
  EXPECT_TRUE(read_all(other, value));
  // The head of this key, and the parts of the other one.
  const std::string own = framed(key, page);
  EXPECT_FALSE(read_all(key, own.substr(0, frame_head_bytes) + value.substr(frame_head_bytes)));
}

TEST(PageFrame, RefusesPartsInAnotherOrder) {
  const Bytes page = drawn(131'072);
  const std::string value = framed(key, page);
  const std::size_t stride = 65'544;
  const std::string turned = value.substr(0, frame_head_bytes) +
                             value.substr(frame_head_bytes + stride) +
                             value.substr(frame_head_bytes, stride);
  ASSERT_EQ(turned.size(), value.size());
  EXPECT_FALSE(read_all(key, turned));
}

}  // namespace
}  // namespace terrace::offload
