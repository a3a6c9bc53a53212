// The head that all JSON documents begin with, and writing one.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "machine.hpp"
#include "terrace/core/config.hpp"

namespace terrace::apps {

/// Keys keep the order in which they are written.
using Json = nlohmann::ordered_json;

/// Returns {"terrace", "command", "build", "machine", "config", "seed"}.
Json document_head(std::string_view command, const Config& config, const Machine& machine);

/// Returns every key with its value: a number where the key's kind is one, else its text.
Json config_values(const Config& config);

/// Writes a document to standard output.
void print_document(const Json& document);

}  // namespace terrace::apps
