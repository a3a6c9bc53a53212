// Prefixes: rows and indexes of tokens that several sequences begin with, kept in the store below
// the host. A sequence that begins with a stored prefix has its rows without computing them: it
// loads the index and what steps need, and leaves the rest where it lies.
//
//   TERRACE_ASSIGN(auto sequence, runtime->open_sequence(PrefixQuery{.tokens = prompt}));
//   sequence->begin_prompt(prompt.size() - sequence->length());   // what was not found
//   ...
//   TERRACE_TRY(sequence->publish(PrefixQuery{.tokens = prompt}));
//
// Prefixes are found by what they are: a chain of SHA-256 over token ids, the model, the shape and
// the salt of a tenant (docs/decisions/0118).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "terrace/core/ids.hpp"

namespace terrace {

/// The model that rows are of. Rows of other models, adapters or shapes are never found.
struct PrefixOptions {
  std::string model = {};  ///< a digest of the weights; empty = prefixes are neither kept nor found
  std::string adapter = {};        ///< a digest of the adapter's weights; empty = no adapter
  std::string rope = {};           ///< all parameters of RoPE, in any words
  std::size_t chunk_tokens = 256;  ///< tokens that are kept together; whole blocks
};

struct PrefixQuery {
  /// From the sequence's first token on. The logits of the last
  /// token are computed with its step: a caller that needs them leaves the last token out.
  std::span<const TokenId> tokens = {};
  std::string salt = {};  ///< a tenant's secret: others' prefixes are never found
};

/// The result of publishing a prefix.
struct PublishReport {
  std::size_t tokens = 0;   ///< that the store has now, of whole chunks
  std::size_t chunks = 0;   ///< that were written: the store had the others
  std::uint64_t bytes = 0;  ///< of rows and indexes that were written
  bool indexed = false;     ///< whether the store has indexes of all these tokens
};

}  // namespace terrace
