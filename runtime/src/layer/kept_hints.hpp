// PromptHints that a policy asks for, as they are kept until the index is built.
#pragma once

#include <vector>

#include "terrace/core/queue.hpp"
#include "terrace/core/retrieval.hpp"
#include "terrace/runtime/sequence.hpp"

namespace terrace {

class RuntimePlan;

struct KeptHints {
  std::vector<float> pre_rope_keys;
  std::vector<float> query_window;
  std::vector<float> attention_scores;

  void clear() noexcept;
  /// Forgets hints of tokens from `tokens` on. Queries are kept until the next prompt.
  void cut(const KvShape& shape, std::size_t tokens);
};

/// The number of a piece's tokens, and how many of them, from the first on, are accepted.
struct AcceptedTokens {
  std::size_t accepted = 0;
  std::size_t all = 0;
};

/// Whether the policy asks for hints.
[[nodiscard]] bool asks_for_hints(const RetrievalTraits& traits) noexcept;

/// Adds hints of a piece to those that are kept, and clears the piece's.
void add_hints(const RuntimePlan& plan, KeptHints& kept, KeptHints& piece, AcceptedTokens tokens);

/// Adds hints of a piece whose tokens are all accepted; the piece's hints stay, too.
void append_hints(const RuntimePlan& plan, KeptHints& kept, const KeptHints& piece);

/// Whether hints of `tokens` tokens have what the policy insists on. Errors: invalid_argument.
[[nodiscard]] Status check_hints(const RuntimePlan& plan, const PromptHints& hints,
                                 std::size_t tokens);

/// Enqueues the copying of a piece's hints, which work enqueued on `compute` before may produce.
Status copy_hints(const RuntimePlan& plan, KeptHints& piece, const PromptHints& hints,
                  Queue& compute);

}  // namespace terrace
