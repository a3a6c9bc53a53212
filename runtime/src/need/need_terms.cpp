#include "need_terms.hpp"

#include <algorithm>

#include "layer/entry_memory.hpp"
#include "memory/reserve_buffer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

NeedQuery in_range(NeedQuery query) noexcept {
  const std::size_t most = std::max<std::size_t>(query.tokens, 1);
  query.step_tokens = std::clamp<std::size_t>(query.step_tokens, 1, most);
  query.draft_tokens = std::clamp<std::size_t>(query.draft_tokens, 1, most);
  query.prompt_tokens = std::min(query.prompt_tokens, query.tokens);
  query.later_prompt_tokens = std::min(query.later_prompt_tokens, query.tokens);
  return query;
}

policies::BudgetSplit split_of(const RuntimePlan& plan, std::size_t tokens) noexcept {
  return plan.budget_grows()
             ? plan.grown_split(tokens)
             : policies::split_budget(plan.budget_terms(tokens), plan.policy->traits());
}

}  // namespace

NeedTerms::NeedTerms(const RuntimePlan& of, const NeedQuery& query,
                     std::size_t device_limit) noexcept
    : plan(of),
      asked(in_range(query)),
      split(split_of(of, query.tokens)),
      device_memory(device_limit) {}

std::size_t NeedTerms::pseudo_entries() const noexcept {
  return may_select() ? plan.policy->pseudo_capacity(with_room(asked.tokens)) : 0;
}

std::size_t NeedTerms::attention_entries() const noexcept {
  const bool everything = traits().keeps_everything || options().dense_layers > 0 ||
                          options().when == RetrievalWhen::spilled ||
                          options().prompts == PromptAttention::retrieved;
  if (everything) return with_room(asked.tokens + 1 + pseudo_entries());
  if (plan.drops()) {
    const std::size_t later = asked.later_prompt_tokens;
    const std::size_t undecided = std::max(split.kept + 2 * split.window,
                                           later > 0 ? with_room(later + 2 * split.window) : 0);
    return split.sinks + plan.most_kept(split.kept) + undecided + 1;
  }
  const std::size_t held = plan.holds() ? plan.most_kept(split.kept) : 0;
  const std::size_t listed = split.sinks + split.window + split.selected + held + 1;
  return plan.room_for(listed + pseudo_entries());
}

std::size_t NeedTerms::single_tokens() const noexcept {
  const bool selecting_prompts = options().prompts == PromptAttention::retrieved;
  const std::size_t of_prompt =
      selecting_prompts ? std::min(asked.step_tokens, asked.later_prompt_tokens) : 0;
  return std::max(asked.draft_tokens, of_prompt);
}

std::size_t NeedTerms::chunks() const noexcept {
  if (layout().empty() || !may_select()) return 0;
  return divide_up(asked.tokens, layout().chunk_tokens);
}

std::size_t NeedTerms::index_bytes(std::size_t chunks) const noexcept {
  return chunks == 0 ? 0 : layout().fixed_bytes + chunks * layout().chunk_bytes;
}

bool NeedTerms::wants_weights() const noexcept {
  return plan.retention != nullptr && plan.retention->traits().scores == ScoredQueries::all;
}

std::size_t NeedTerms::weight_columns() const noexcept {
  // Tokens of a prompt that comes in steps give weights to all rows up to their own.
  return wants_weights() ? with_room(std::max(asked.tokens, attention_entries())) : 0;
}

std::size_t NeedTerms::entry_bytes() const noexcept {
  if (plan.retention == nullptr) return 0;
  std::size_t bytes = 0;
  for (std::size_t i = options().dense_layers; i < shape().layers; ++i) {
    const auto rooms = plan.entry_rooms(static_cast<LayerId>(i), split, asked.tokens);
    bytes += EntryLayout(shape(), rooms).bytes();
  }
  return bytes;
}

bool NeedTerms::keeps_later_prompts() const noexcept {
  return plan.drops() || options().prompts == PromptAttention::retrieved;
}

Status check_need(const RuntimePlan& plan, const NeedQuery& query) {
  TERRACE_TRY(plan.check_countable(query.tokens));
  const KvShape& shape = plan.shape();
  const std::size_t single = NeedTerms(plan, query, /*device_limit=*/0).single_tokens();
  // More than a token of a step takes in lists, or in weights, in any tier.
  Result<std::size_t> bytes = 16;
  for (const std::size_t factor :
       {single, shape.layers, shape.query_heads, with_room(query.tokens)}) {
    bytes = checked_multiply(*bytes, factor);
    if (bytes) continue;
    return fail(Errc::invalid_argument,
                "a step of {} tokens in a sequence of {} takes more bytes than 64 bits count",
                single, query.tokens);
  }
  return {};
}

}  // namespace terrace
