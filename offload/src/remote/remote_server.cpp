// Reads a URL of servers.
#include <algorithm>
#include <charconv>
#include <optional>

#include "terrace/offload/remote_store.hpp"

namespace terrace::offload {
namespace {

constexpr std::string_view scheme = "redis://";

/// The URL is not shown: a part of it that is at the wrong place may be the password.
tl::unexpected<Error> refused(std::string_view why) {
  return fail(Errc::invalid_argument,
              "a URL of servers with {}; write "
              "redis://[[user]:password@]host[:port][,host[:port]...]",
              why);
}

std::optional<unsigned> digit(char c) noexcept {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return std::nullopt;
}

/// Returns a text with each %XX replaced by its byte; nothing where an XX is no number.
std::optional<std::string> decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const auto high = digit(text[i + 1]);
    const auto low = digit(text[i + 2]);
    if (!high || !low) return std::nullopt;
    plain += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return plain;
}

/// Returns an address; nothing where the text is none.
std::optional<RemoteAddress> address_of(std::string_view text) {
  RemoteAddress address;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    address.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
  } else {
    const std::size_t end = std::min(text.find(':'), text.size());
    address.host = text.substr(0, end);
    port = text.substr(end);
  }
  if (address.host.empty()) return std::nullopt;
  if (port.empty()) return address;
  port.remove_prefix(1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  const bool is_port = error == std::errc{} && end == port.data() + port.size();
  return is_port && address.port > 0 ? std::optional(address) : std::nullopt;
}

}  // namespace

std::string RemoteAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<RemoteServer> RemoteServer::parse(std::string_view url) {
  if (!url.starts_with(scheme)) return refused("no redis:// at its beginning");
  std::string_view rest = url.substr(scheme.size());
  RemoteServer server;
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view login = rest.substr(0, at);
    rest.remove_prefix(at + 1);
    const std::size_t colon = login.find(':');
    if (colon == std::string_view::npos) return refused("no : before the password");
    const auto user = decoded(login.substr(0, colon));
    const auto password = decoded(login.substr(colon + 1));
    if (!user || !password) return refused("a % without two hexadecimal digits");
    if (password->empty()) return refused("an empty password");
    server.user = *user;
    server.password = *password;
  }
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const auto address = address_of(rest.substr(0, end));
    if (!address) return refused("a host or port that is none");
    server.addresses.push_back(*address);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (server.addresses.empty()) return refused("no host");
  return server;
}

}  // namespace terrace::offload
