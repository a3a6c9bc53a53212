#include "shown_list.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace terrace::engine {

std::string shown_list(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  const auto first = std::span(names).first(std::min(most, names.size()));
  std::string text = fmt::format("{}", fmt::join(first, ", "));
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

}  // namespace terrace::engine
