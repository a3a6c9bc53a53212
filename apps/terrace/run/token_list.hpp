// Lists of token ids in JSON files.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "terrace/core/ids.hpp"

namespace terrace::apps {

/// Returns a whole number from 0 on; get<>() would make one of any number, and of true. Throws
/// json::exception where it is none.
std::uint64_t whole_number(const nlohmann::json& value);

/// Returns the ids of a list, of any vocabulary. Throws json::exception where it is none.
std::vector<TokenId> token_list(const nlohmann::json& list);

}  // namespace terrace::apps
