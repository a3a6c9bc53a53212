// PromptHints that a policy asks for, as they are kept until the index is built.
#pragma once

#include <string_view>
#include <vector>

#include "terrace/core/queue.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace {

struct SequenceContext;

struct KeptHints {
  std::vector<float> pre_rope_keys;
  std::vector<float> query_window;
  std::vector<float> attention_scores;
};

/// Whether hints of `tokens` tokens have what the policy insists on. Errors: invalid_argument.
[[nodiscard]] Status check_hints(std::string_view call, const SequenceContext& context,
                                 const PromptHints& hints, std::size_t tokens);

/// Enqueues the keeping of hints, which work enqueued on `compute` before may produce.
Status keep_hints(const SequenceContext& context, KeptHints& kept, const PromptHints& hints,
                  Queue& compute);

}  // namespace terrace
