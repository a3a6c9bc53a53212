#include "row_blocks.hpp"

#include <algorithm>

#include "terrace/core/bytes.hpp"

namespace terrace {

std::size_t RowBlocks::all() const noexcept {
  return divide_up(terms_.asked.tokens + 1, terms_.options().block_tokens);
}

std::size_t RowBlocks::undecided() const noexcept {
  return terms_.split.sinks + terms_.split.kept + 2 * terms_.split.window;
}

std::size_t RowBlocks::pages() const noexcept {
  if (terms_.traits().keeps_everything) return 0;
  const NeedQuery& asked = terms_.asked;
  if (!terms_.plan.drops()) return terms_.shape().layers * all();
  // Pages of tokens that retention has decided on are given back, but for those at either end.
  const std::size_t first = asked.prompt_tokens != 0 ? asked.prompt_tokens : asked.tokens;
  const std::size_t tokens =
      std::max(first, undecided() + asked.later_prompt_tokens) + asked.draft_tokens;
  const std::size_t most = divide_up(tokens, terms_.options().block_tokens) + 2;
  return terms_.options().dense_layers * all() + terms_.sparse_layers() * std::min(all(), most);
}

bool RowBlocks::keeps_all() const noexcept {
  return terms_.traits().keeps_everything ||
         terms_.options().placement == Placement::resident_first;
}

std::size_t RowBlocks::held() const noexcept {
  const std::size_t sparse = keeps_all() ? all() : with_window(0, 0);
  return terms_.options().dense_layers * all() + terms_.sparse_layers() * sparse;
}

std::size_t RowBlocks::waiting() const noexcept {
  const RetrievalTraits& traits = terms_.traits();
  const policies::BudgetSplit& split = terms_.split;
  if (traits.batch_tokens_max <= 1) return 0;
  return std::min({split.selected / 2, traits.batch_tokens_max, split.window}) + 1;
}

std::size_t RowBlocks::with_window(std::size_t more, std::size_t runs) const noexcept {
  const policies::BudgetSplit& split = terms_.split;
  const std::size_t tokens = terms_.asked.tokens;
  const std::size_t size = terms_.options().block_tokens;
  if (terms_.plan.drops()) {
    // Until the first flush, which a short prompt puts off, tokens are attended to row by row.
    return std::min(all(), divide_up(std::min(tokens, undecided()) + 1 + more, size) + runs);
  }
  const std::size_t window = std::min(split.window, tokens) + 1 + waiting() + more;
  // It begins anywhere in a block, and what has left it goes when the next step begins.
  return std::min(
      all(), divide_up(std::min(split.sinks, tokens), size) + divide_up(window, size) + 1 + runs);
}

std::size_t RowBlocks::left_behind() const noexcept {
  return terms_.asked.step_tokens - std::min(terms_.asked.step_tokens, terms_.split.window);
}

std::size_t RowBlocks::unindexed(std::size_t tokens) const noexcept {
  return terms_.traits().batch_tokens_max > 1 ? std::min(terms_.split.selected, tokens) : 0;
}

std::size_t RowBlocks::with_piece(std::size_t unindexed) const noexcept {
  const std::size_t step = terms_.asked.step_tokens;
  const std::size_t piece =
      std::min(step, std::max<std::size_t>(1, terms_.split.window + unindexed));
  const std::size_t more = unindexed - std::min(unindexed, waiting()) + piece - 1;
  // A piece that is longer than the window leaves a gap after the window of the token before it.
  return with_window(more, piece < step ? 1 : 0);
}

std::size_t RowBlocks::with_later_prompt() const noexcept {
  const std::size_t tokens = terms_.asked.later_prompt_tokens;
  if (tokens == 0) return 0;
  return terms_.keeps_later_prompts() ? with_window(tokens, 0) : with_piece(unindexed(tokens));
}

std::size_t RowBlocks::with_draft() const noexcept {
  // Tokens that decode while an index is being built are not indexed.
  const bool waits = terms_.options().until_ready == UntilReady::wait;
  const std::size_t decoded = waits ? 0 : unindexed(terms_.asked.tokens);
  const std::size_t more = decoded - std::min(decoded, waiting());
  return with_window(more + terms_.asked.draft_tokens - 1, 0);
}

std::size_t RowBlocks::in_step() const noexcept {
  if (keeps_all()) return 0;
  const std::size_t most = std::max({with_piece(0), with_later_prompt(), with_draft()});
  return terms_.sparse_layers() * (most - with_window(0, 0));
}

std::size_t RowBlocks::cache_slots() const noexcept {
  const RuntimeOptions& options = terms_.options();
  if (options.cache.none() || !terms_.may_select()) return 0;
  return terrace::cache_slots(
      options.cache, {.slot_tokens = cache_slot_tokens(options.cache.granularity, options.shape,
                                                       options.block_tokens),
                      .selected_tokens = terms_.split.selected,
                      .sharers = terms_.asked.cache_sharers});
}

std::size_t RowBlocks::cached() const noexcept {
  if (!terms_.plan.caches(CacheGranularity::block) || keeps_all()) return 0;
  const std::size_t slots = std::min(cache_slots(), all());
  const std::size_t seeds = std::min(slots, left_behind() / terms_.options().block_tokens);
  return terms_.sparse_layers() * std::min(slots + seeds, all() - with_window(0, 0));
}

std::size_t RowBlocks::tiled_layers() const noexcept {
  const policies::BudgetSplit& split = terms_.split;
  const std::size_t tokens = terms_.asked.tokens;
  if (terms_.traits().keeps_everything) return 0;
  const std::size_t attended = terms_.plan.drops() ? undecided() : split.sinks + split.window;
  // Tiles are taken before it is known that there is room for all rows.
  return tokens > attended ? terms_.sparse_layers() : 0;
}

}  // namespace terrace
