// Whole messages: a header and its body.
//
//   const std::vector<std::byte> frame = make_frame({.kind = ..., .request = 7}, Find{...});
//   TERRACE_ASSIGN(const Find find, read_body<Find>(body));
#pragma once

#include "message_fields.hpp"

namespace terrace::node::wire {

/// The body's length is set by this.
template <typename Message>
std::vector<std::byte> make_frame(Header header, const Message& message) {
  std::vector<std::byte> frame;
  FieldWriter writer(frame);
  writer(header);
  writer(message);
  header.body_bytes = static_cast<std::uint32_t>(frame.size() - header_bytes);
  std::vector<std::byte> head;
  FieldWriter{head}(header);
  std::copy(head.begin(), head.end(), frame.begin());
  return frame;
}

/// A message without a body.
struct Nothing {};
template <typename Fields>
void list_fields(Fields& /*fields*/, Nothing& /*m*/) {}

/// Errors   invalid_argument: fields are missing, or there are more bytes than fields
template <typename Message>
[[nodiscard]] Result<Message> read_body(std::span<const std::byte> body) {
  Message message;
  FieldReader reader(body);
  reader(message);
  if (!reader.failed() && reader.at_end()) return message;
  return fail(Errc::invalid_argument, "a message of {} bytes is {} than its fields", body.size(),
              reader.failed() ? "shorter" : "longer");
}

/// Returns the reply that a request has failed.
[[nodiscard]] std::vector<std::byte> make_error_frame(Kind kind, std::uint64_t request,
                                                      const Error& error);
/// Returns the error that such a reply tells. The text is shown without control characters.
[[nodiscard]] Error read_error(const Header& header, std::span<const std::byte> body);

[[nodiscard]] std::uint16_t status_of(Errc code) noexcept;
/// Returns io_error of a number that stands for no code.
[[nodiscard]] Errc code_of(std::uint16_t status) noexcept;

/// Reads a header. Errors: invalid_argument: a body above body_bytes_max, or a reserved byte that
/// is set: the stream is of no use any more.
[[nodiscard]] Result<Header> read_header(std::span<const std::byte, header_bytes> bytes);

/// Returns the place of each part in the memory of a reservation, and of its end last; nothing
/// where that is more than 2^40 bytes.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> lay_out(std::span<const SizedPart> parts);

}  // namespace terrace::node::wire
