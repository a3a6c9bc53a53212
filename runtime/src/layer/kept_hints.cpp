#include "kept_hints.hpp"

#include <algorithm>

#include "services/sequence_services.hpp"

namespace terrace {
namespace {

/// Appends elements to the kept ones, and keeps only the last `limit` of all.
void keep_last(std::vector<float>& kept, std::span<const float> more, std::size_t limit) {
  kept.insert(kept.end(), more.begin(), more.end());
  if (kept.size() > limit) {
    kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(limit));
  }
}

KeptHints copy_of(const PromptHints& hints) {
  return {.pre_rope_keys{hints.pre_rope_keys.begin(), hints.pre_rope_keys.end()},
          .query_window{hints.query_window.begin(), hints.query_window.end()},
          .attention_scores{hints.attention_scores.begin(), hints.attention_scores.end()}};
}

}  // namespace

bool asks_for_hints(const RetrievalTraits& traits) noexcept {
  return traits.needs_pre_rope_keys || traits.query_window_tokens > 0 ||
         traits.needs_attention_scores;
}

Status check_hints(const RuntimePlan& plan, const PromptHints& hints, std::size_t tokens) {
  const RetrievalTraits& traits = plan.traits();
  const std::size_t rows = tokens * plan.shape().kv_heads;
  const std::size_t keys = rows * plan.shape().head_dim;
  if (traits.needs_pre_rope_keys && hints.pre_rope_keys.size() != keys) {
    return fail(Errc::invalid_argument,
                "policy {} needs the keys before RoPE, {} numbers; the piece has {}", traits.name,
                keys, hints.pre_rope_keys.size());
  }
  if (traits.needs_attention_scores && hints.attention_scores.size() != rows) {
    return fail(Errc::invalid_argument,
                "policy {} needs attention scores, {} numbers; the piece has {}", traits.name, rows,
                hints.attention_scores.size());
  }
  return {};
}

Status copy_hints(const RuntimePlan& plan, KeptHints& piece, const PromptHints& hints,
                  Queue& compute) {
  if (!asks_for_hints(plan.traits())) return {};
  const auto copy = [&piece, hints]() -> Result<std::size_t> {
    piece = copy_of(hints);
    return 0;
  };
  return compute.call(Phase::update, copy).map([](Ticket) {});
}

void add_hints(const RuntimePlan& plan, KeptHints& kept, KeptHints& piece, AcceptedTokens tokens) {
  const RetrievalTraits& traits = plan.traits();
  const KvShape& shape = plan.shape();
  if (traits.needs_pre_rope_keys) {
    const std::size_t accepted = tokens.accepted * shape.kv_heads * shape.head_dim;
    piece.pre_rope_keys.resize(std::min(accepted, piece.pre_rope_keys.size()));
    kept.pre_rope_keys.insert(kept.pre_rope_keys.end(), piece.pre_rope_keys.begin(),
                              piece.pre_rope_keys.end());
  }
  // Queries are those of the piece's last positions.
  const std::size_t query = shape.query_heads * shape.head_dim;
  const std::size_t rejected =
      std::min((tokens.all - tokens.accepted) * query, piece.query_window.size());
  piece.query_window.resize(piece.query_window.size() - rejected);
  keep_last(kept.query_window, piece.query_window, traits.query_window_tokens * query);
  if (traits.needs_attention_scores) kept.attention_scores.swap(piece.attention_scores);
  piece.clear();
}

void append_hints(const RuntimePlan& plan, KeptHints& kept, const KeptHints& piece) {
  const RetrievalTraits& traits = plan.traits();
  const KvShape& shape = plan.shape();
  kept.pre_rope_keys.insert(kept.pre_rope_keys.end(), piece.pre_rope_keys.begin(),
                            piece.pre_rope_keys.end());
  keep_last(kept.query_window, piece.query_window,
            traits.query_window_tokens * shape.query_heads * shape.head_dim);
  if (traits.needs_attention_scores) kept.attention_scores = piece.attention_scores;
}

void KeptHints::cut(const KvShape& shape, std::size_t tokens) {
  const std::size_t keys = tokens * shape.kv_heads * shape.head_dim;
  pre_rope_keys.resize(std::min(pre_rope_keys.size(), keys));
  const std::size_t scored = attention_scores.size() / shape.kv_heads;
  const std::size_t left = std::min(scored, tokens);
  for (std::size_t head = 1; head < shape.kv_heads; ++head) {
    const auto from = attention_scores.begin() + static_cast<std::ptrdiff_t>(head * scored);
    std::copy_n(from, left, attention_scores.begin() + static_cast<std::ptrdiff_t>(head * left));
  }
  attention_scores.resize(left * shape.kv_heads);
}

void KeptHints::clear() noexcept {
  pre_rope_keys.clear();
  query_window.clear();
  attention_scores.clear();
}

}  // namespace terrace
