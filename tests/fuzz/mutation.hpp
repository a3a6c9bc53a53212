// Damages inputs of readers in seeded ways: bytes, tokens that mean something to a parser, lines,
// pieces of other inputs.
#pragma once

#include <string>
#include <vector>

#include "terrace/core/rng.hpp"

namespace terrace {

/// A file below tests/fuzz/corpus. Readers refuse those whose name begins with "bad".
struct Sample {
  std::string name;
  std::string text;
};
using Corpus = std::vector<Sample>;

/// Returns an input of the corpus with zero to four edits.
std::string mutate(const Corpus& corpus, Rng& rng);

/// Makes one edit, which may take a piece of the corpus.
void edit(std::string& text, const Corpus& corpus, Rng& rng);

/// Returns the files of a folder below tests/fuzz/corpus, in the order of their names.
Corpus read_corpus(const std::string& folder);

}  // namespace terrace
