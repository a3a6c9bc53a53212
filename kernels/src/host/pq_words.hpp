// Selection from codes by code words: the codes of all sub-spaces of a token, side by side in one
// number. If codes have few bits there are far fewer words than candidates, and the weight of a
// candidate depends only on its word. Therefore candidates are counted by word, words are weighed
// and ranked, and one more pass finds the candidates of the chosen words.
#pragma once

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// Returns whether there are so few words that counting them pays: one or two sub-spaces of at
/// least 4 bits, words of at most 12 bits, and no fewer candidates than words.
bool has_few_words(const PqSelect& op) noexcept;

/// Selects for one KV head, if has_few_words(op). The result is that of pq_select, except for the
/// rounding of a softmax's sum.
///
/// Cost     two passes over the codes, for any group; one exponential per word and query head
void select_by_words(const PqSelect& op, std::size_t head) noexcept;

}  // namespace terrace::kernels::host
