// How a page lies in a value of a server that other programs may write to, too.
//
// A value is a head (magic, version, key, bytes of the page, checksum of these), and then for each
// part of the page its checksum and its bytes. A checksum stands before its part, and not in a
// table, so that the place of a part follows from its number alone: a part is read with one request
// whose answer is all that its check needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "storage/page_parts.hpp"
#include "terrace/core/store.hpp"

namespace terrace::offload {

inline constexpr std::size_t frame_head_bytes = 48;
inline constexpr std::size_t frame_page_bytes_max = std::size_t{256} << 20;

/// Returns the value of a page.
[[nodiscard]] std::string framed(PageKey key, std::span<const std::byte> page);

/// Returns the bytes of the value of a page.
[[nodiscard]] std::size_t framed_bytes(std::size_t page_bytes) noexcept;
/// Returns the bytes of the page that a value of so many bytes has.
[[nodiscard]] std::size_t unframed_bytes(std::size_t value_bytes) noexcept;

/// Returns the bytes of a page by the head of its value, which may have more after it.
///
/// Errors   corrupt: no head, or that of another key; unsupported: of another version
[[nodiscard]] Result<std::size_t> page_bytes(PageKey key, std::string_view value);

/// Returns where in a value those parts lie, with their checksums, that some bytes of the page are
/// in. The last one may go on behind the value's end.
[[nodiscard]] PagePiece framed_parts(const PagePiece& some) noexcept;

/// Copies some bytes of a page to `target`, out of the bytes of framed_parts(). `head_bytes`: the
/// bytes of the page by its head. Returns false, and may have written to the target, where the
/// parts are not as they were written.
[[nodiscard]] bool copy_checked(PageKey key, std::size_t head_bytes, const PagePiece& some,
                                std::string_view parts, std::byte* target);

}  // namespace terrace::offload
