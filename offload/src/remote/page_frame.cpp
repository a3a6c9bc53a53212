#include "page_frame.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "storage/sealed_block.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::offload {
namespace {

constexpr std::uint64_t frame_magic = 0x6567617065727254;  // "Trrepage", read from its low byte on
constexpr std::uint64_t frame_version = 1;
constexpr std::size_t frame_part_bytes = std::size_t{64} << 10;
constexpr std::size_t sum_bytes = sizeof(std::uint64_t);
constexpr std::size_t stride = frame_part_bytes + sum_bytes;

struct FrameHead {
  std::uint64_t checksum = 0;  ///< written by seal()
  std::uint64_t magic = frame_magic;
  std::uint64_t version = frame_version;
  PageKey key = {};
  std::uint64_t bytes = 0;
};
static_assert(sizeof(FrameHead) == frame_head_bytes && sizeof(FrameHead::checksum) == seal_bytes);
static_assert(std::endian::native == std::endian::little);

std::uint64_t frame_part_sum(PageKey key, std::uint64_t number, const char* bytes,
                             std::size_t count) noexcept {
  const std::uint64_t words[] = {frame_magic, key.high, key.low, number};
  return XXH3_64bits_withSeed(bytes, count, XXH3_64bits(words, sizeof words));
}

}  // namespace

std::size_t framed_bytes(std::size_t page_bytes) noexcept {
  return frame_head_bytes + page_bytes + divide_up(page_bytes, frame_part_bytes) * sum_bytes;
}

std::size_t unframed_bytes(std::size_t value_bytes) noexcept {
  const std::size_t parts = value_bytes - std::min(value_bytes, frame_head_bytes);
  const std::size_t sums = divide_up(parts, stride) * sum_bytes;
  return parts - std::min(parts, sums);
}

std::string framed(PageKey key, std::span<const std::byte> page) {
  std::string value(framed_bytes(page.size()), '\0');
  FrameHead head{.key = key, .bytes = page.size()};
  seal(std::as_writable_bytes(std::span(&head, 1)));
  std::memcpy(value.data(), &head, sizeof head);
  char* to = value.data() + sizeof head;
  for (std::uint64_t number = 0; number * frame_part_bytes < page.size(); ++number) {
    const auto rest = page.subspan(number * frame_part_bytes);
    const std::size_t count = std::min(rest.size(), frame_part_bytes);
    std::memcpy(to + sum_bytes, rest.data(), count);
    const std::uint64_t sum = frame_part_sum(key, number, to + sum_bytes, count);
    std::memcpy(to, &sum, sizeof sum);
    to += sum_bytes + count;
  }
  return value;
}

Result<std::size_t> page_bytes(PageKey key, std::string_view value) {
  FrameHead head;
  if (value.size() >= sizeof head) std::memcpy(&head, value.data(), sizeof head);
  const bool is_head = value.size() >= sizeof head && is_sealed(std::as_bytes(std::span(&head, 1)));
  if (!is_head || head.magic != frame_magic || head.key != key || head.bytes == 0 ||
      head.bytes > frame_page_bytes_max) {
    return fail(Errc::corrupt, "store remote: page {:016x}{:016x} is not what was written",
                key.high, key.low);
  }
  if (head.version != frame_version) {
    return fail(Errc::unsupported, "store remote: page {:016x}{:016x} is of version {}, not {}",
                key.high, key.low, head.version, frame_version);
  }
  return static_cast<std::size_t>(head.bytes);
}

PagePiece framed_parts(const PagePiece& some) noexcept {
  const std::uint64_t first = some.begin / frame_part_bytes;
  const std::uint64_t behind = divide_up(some.end(), frame_part_bytes);
  return {frame_head_bytes + first * stride, (behind - first) * stride};
}

bool copy_checked(PageKey key, std::size_t head_bytes, const PagePiece& some,
                  std::string_view parts, std::byte* target) {
  const std::uint64_t last = (some.end() - 1) / frame_part_bytes;
  for (std::uint64_t number = some.begin / frame_part_bytes; number <= last; ++number) {
    const std::uint64_t begin = number * frame_part_bytes;
    const std::size_t count = std::min<std::size_t>(frame_part_bytes, head_bytes - begin);
    if (parts.size() < sum_bytes + count) return false;
    std::uint64_t sum = 0;
    std::memcpy(&sum, parts.data(), sizeof sum);
    const char* const bytes = parts.data() + sum_bytes;
    if (sum != frame_part_sum(key, number, bytes, count)) return false;
    const std::uint64_t from = std::max(begin, some.begin);
    const std::uint64_t to = std::min<std::uint64_t>(begin + count, some.end());
    std::memcpy(target + (from - some.begin), bytes + (from - begin), to - from);
    parts.remove_prefix(sum_bytes + count);
  }
  return parts.empty();  // a longer value is of another page
}

}  // namespace terrace::offload
