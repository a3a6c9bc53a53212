#include "kept_hints.hpp"

#include "sequence/sequence_context.hpp"

namespace terrace {
namespace {

/// Adds the elements behind those already kept, of which only the last `limit` stay.
void keep_last(std::vector<float>& kept, std::span<const float> more, std::size_t limit) {
  kept.insert(kept.end(), more.begin(), more.end());
  if (kept.size() > limit) {
    kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(limit));
  }
}

}  // namespace

Status check_hints(std::string_view call, const SequenceContext& context, const PromptHints& hints,
                   std::size_t tokens) {
  const RetrievalTraits& traits = context.traits();
  const std::size_t rows = tokens * context.shape().kv_heads;
  const std::size_t keys = rows * context.shape().head_dim;
  if (traits.needs_pre_rope_keys && hints.pre_rope_keys.size() != keys) {
    return fail(Errc::invalid_argument,
                "{}: policy {} needs the keys before RoPE, {} numbers; the piece has {}", call,
                traits.name, keys, hints.pre_rope_keys.size());
  }
  if (traits.needs_attention_scores && hints.attention_scores.size() != rows) {
    return fail(Errc::invalid_argument,
                "{}: policy {} needs attention scores, {} numbers; the piece has {}", call,
                traits.name, rows, hints.attention_scores.size());
  }
  return {};
}

Status keep_hints(const SequenceContext& context, KeptHints& kept, const PromptHints& hints,
                  Queue& compute) {
  const RetrievalTraits& traits = context.traits();
  const bool wanted =
      traits.needs_pre_rope_keys || traits.query_window_tokens > 0 || traits.needs_attention_scores;
  if (!wanted) return {};
  const auto keep = [&context, &kept, hints]() -> Result<std::size_t> {
    const RetrievalTraits& asked = context.traits();
    const KvShape& shape = context.shape();
    if (asked.needs_pre_rope_keys) {
      kept.pre_rope_keys.insert(kept.pre_rope_keys.end(), hints.pre_rope_keys.begin(),
                                hints.pre_rope_keys.end());
    }
    keep_last(kept.query_window, hints.query_window,
              asked.query_window_tokens * shape.query_heads * shape.head_dim);
    if (asked.needs_attention_scores) {
      kept.attention_scores.assign(hints.attention_scores.begin(), hints.attention_scores.end());
    }
    return 0;
  };
  return compute.call(Phase::update, keep).map([](Ticket) {});
}

}  // namespace terrace
