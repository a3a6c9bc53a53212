// Lists of token ids in JSON files.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "terrace/core/ids.hpp"

namespace terrace::apps {

/// Returns a whole number from 0 on; get<>() would convert any number, and true. Throws
/// json::exception for other values.
std::uint64_t whole_number(const nlohmann::json& value);

/// Returns the ids of a list, of any vocabulary. Throws json::exception for other values.
std::vector<TokenId> token_list(const nlohmann::json& list);

}  // namespace terrace::apps
