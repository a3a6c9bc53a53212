#include "frames.hpp"

#include <algorithm>
#include <cstring>

#include "terrace/core/config.hpp"

namespace terrace::node::wire {
namespace {

constexpr std::uint64_t reservation_bytes_most = std::uint64_t{1} << 40;

}  // namespace

std::uint16_t status_of(Errc code) noexcept {
  return static_cast<std::uint16_t>(1 + static_cast<std::uint16_t>(code));
}

Errc code_of(std::uint16_t status) noexcept {
  const bool is_known = status >= 1 && status <= status_of(Errc::cancelled);
  return is_known ? static_cast<Errc>(status - 1) : Errc::io_error;
}

std::vector<std::byte> make_error_frame(Kind kind, std::uint64_t request, const Error& error) {
  Header header{.kind = static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | reply_bit),
                .status = status_of(error.code),
                .request = request};
  const std::string_view text = error.message();
  header.body_bytes = static_cast<std::uint32_t>(text.size());
  std::vector<std::byte> frame;
  FieldWriter{frame}(header);
  for (const char each : text) frame.push_back(static_cast<std::byte>(each));
  return frame;
}

Error read_error(const Header& header, std::span<const std::byte> body) {
  const std::string_view text(reinterpret_cast<const char*>(body.data()),
                              std::min(body.size(), Error::text_capacity));
  return make_error(code_of(header.status), "the daemon: {}", shown(text));
}

Result<Header> read_header(std::span<const std::byte, header_bytes> bytes) {
  Header header;
  FieldReader{bytes}(header);
  if (header.body_bytes > body_bytes_max) {
    return fail(Errc::invalid_argument, "a message of {} bytes is above the {} there may be",
                header.body_bytes, body_bytes_max);
  }
  if (header.reserved != 0) {
    return fail(Errc::invalid_argument, "a message's reserved byte is {}", header.reserved);
  }
  return header;
}

std::optional<std::vector<std::uint64_t>> lay_out(std::span<const SizedPart> parts) {
  std::vector<std::uint64_t> places;
  std::uint64_t end = 0;
  for (const SizedPart& part : parts) {
    if (part.bytes > reservation_bytes_most) return std::nullopt;
    end = (end + part_alignment - 1) / part_alignment * part_alignment;
    places.push_back(end);
    end += part.bytes;
    if (end > reservation_bytes_most) return std::nullopt;
  }
  places.push_back(end);
  return places;
}

}  // namespace terrace::node::wire
