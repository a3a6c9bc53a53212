// The grammar of JSON (RFC 8259), as a judge of readers: written apart from any library.
#pragma once

#include <string_view>

namespace terrace {

/// True where the whole text is one JSON value in valid UTF-8, with white space around it.
bool is_json(std::string_view text);

}  // namespace terrace
