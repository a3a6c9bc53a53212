// Later prompts of a conversation, as a file has them: a JSON list of texts, or of lists of ids.
#pragma once

#include <string>
#include <vector>

#include "terrace/core/ids.hpp"
#include "terrace/core/result.hpp"

namespace terrace::apps {

/// Tokens of a later prompt.
using Turn = std::vector<TokenId>;

/// Reads the turns: at least one, and no turn is empty. If a turn is a text (UTF-8), its bytes are
/// its tokens.
///
/// Errors   those of InputFile; invalid_argument: another file, an id outside the vocabulary, or a
///          text for a model whose tokens are not bytes
Result<std::vector<Turn>> read_turns_file(const std::string& path, std::size_t vocabulary);

}  // namespace terrace::apps
