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

Error Error::while_doing(std::string_view context) const noexcept {
  Error result = *this;
  const auto end =
      fmt::format_to_n(result.text.data(), text_capacity, "{}: {}", context, message());
  result.text_size = static_cast<std::uint16_t>(std::min(end.size, text_capacity));
  return result;
}

}  // namespace terrace
