// Tokens to run on: the bytes of a text, ids of a file, or the text that is always there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/ids.hpp"
#include "terrace/core/result.hpp"

namespace terrace::apps {

constexpr std::size_t byte_vocabulary = 256;  ///< a model of this vocabulary reads bytes

struct TextSource {
  std::string text_file = {};    ///< bytes are tokens; "-" is standard input, here and below
  std::string tokens_file = {};  ///< 32-bit ids; both empty = the default text
  std::string_view counts = "--context or --decode";  ///< options that say how many are needed
};

struct TokenText {
  std::string path = {};
  std::vector<TokenId> tokens = {};
};

/// Reads the first `wanted` tokens, and no more of the file than they take.
///
/// Errors   invalid_argument: too few tokens, half an id, an id outside the vocabulary, or bytes
///          for a model with other tokens; those of InputFile
Result<TokenText> read_tokens(const TextSource& source, std::size_t vocabulary, std::size_t wanted);

}  // namespace terrace::apps
