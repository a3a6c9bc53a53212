// Damages inputs of readers in seeded ways: bytes, tokens that mean something to a parser, pieces
// of other inputs.
#pragma once

#include <string>
#include <vector>

#include "terrace/core/rng.hpp"

namespace terrace {

/// Returns an input of the corpus with one to four edits.
std::string mutate(const std::vector<std::string>& corpus, Rng& rng);

/// Returns the files of a folder below tests/fuzz/corpus, in the order of their names.
std::vector<std::string> read_corpus(const std::string& folder);

}  // namespace terrace
