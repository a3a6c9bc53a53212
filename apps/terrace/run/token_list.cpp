#include "run/token_list.hpp"

#include <fmt/core.h>

#include <limits>

namespace terrace::apps {

using nlohmann::json;

std::uint64_t whole_number(const json& value) {
  return value.get_ref<const json::number_unsigned_t&>();
}

std::vector<TokenId> token_list(const json& list) {
  std::vector<TokenId> ids;
  for (const json& value : list.get_ref<const json::array_t&>()) {
    const std::uint64_t id = whole_number(value);
    if (id > std::numeric_limits<std::uint32_t>::max()) {
      throw json::out_of_range::create(406, fmt::format("{} is no token", id), &value);
    }
    ids.push_back(TokenId{static_cast<std::uint32_t>(id)});
  }
  return ids;
}

}  // namespace terrace::apps
