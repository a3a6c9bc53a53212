#include <pwd.h>

#include <array>
#include <charconv>

#include "terrace/core/config.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::node {

Result<std::uint32_t> user_number(const std::string& name) {
  std::uint32_t number = 0;
  const char* const end = name.data() + name.size();
  if (const auto [rest, error] = std::from_chars(name.data(), end, number);
      error == std::errc{} && rest == end) {
    return number;
  }
  std::array<char, 16384> room{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(name.c_str(), &entry, room.data(), room.size(), &found) == 0 &&
      found != nullptr) {
    return found->pw_uid;
  }
  return fail(Errc::invalid_argument, "there is no user '{}'", shown(name));
}

}  // namespace terrace::node
