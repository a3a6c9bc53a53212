#include "terrace/core/result.hpp"

#include <algorithm>

namespace terrace {

std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument:
      return "invalid_argument";
    case Errc::out_of_memory:
      return "out_of_memory";
    case Errc::not_ready:
      return "not_ready";
    case Errc::unsupported:
      return "unsupported";
    case Errc::device_error:
      return "device_error";
    case Errc::device_lost:
      return "device_lost";
    case Errc::io_error:
      return "io_error";
    case Errc::corrupt:
      return "corrupt";
    case Errc::cancelled:
      return "cancelled";
  }
  return "unknown";
}

Error format_error(Errc code, std::source_location where, fmt::string_view format,
                   fmt::format_args args) noexcept {
  Error error{.code = code, .where = where};
  const auto end = fmt::vformat_to_n(error.text.data(), Error::text_capacity, format, args);
  error.text_size = static_cast<std::uint16_t>(std::min(end.size, Error::text_capacity));
  return error;
}

Error Error::while_doing(std::string_view context) const noexcept {
  Error result = format_error(code, where, "{}: {}", fmt::make_format_args(context, message()));
  result.native = native;
  result.lacks = lacks;
  return result;
}

}  // namespace terrace
