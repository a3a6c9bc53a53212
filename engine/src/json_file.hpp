// JSON from files that strangers wrote: no exceptions, no repeated keys, no deep nesting.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "terrace/core/result.hpp"

namespace terrace::engine {

/// Parses one JSON object.
///
/// Errors   corrupt: no JSON, no object, a key twice in one object, nested more than 127 deep.
///          Each names `label`
Result<nlohmann::json> parse_json_object(std::span<const std::byte> text, std::string_view label);

/// Reads the JSON object in the file at `path`.
///
/// Errors   those of MappedFile::open and parse_json_object; corrupt: larger than 100 MB
Result<nlohmann::json> read_json_object(const std::filesystem::path& path);

}  // namespace terrace::engine
