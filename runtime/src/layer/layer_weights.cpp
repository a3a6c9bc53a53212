#include "layer_weights.hpp"

namespace terrace {

void TokenWeights::add_to(PositionScores& scores) const {
  if (scores.empty()) scores.start(lists);
  for (std::size_t list = 0; list < lists; ++list) {
    const float* weights = data + list * stride;
    for (const TokenRange tokens : {columns.sinks, columns.window}) {
      scores.add(list, tokens.begin, {weights, tokens.size()});
      weights += tokens.size();
    }
    if (columns.entries == nullptr || columns.entries->empty()) continue;
    const EntryList& entries = (*columns.entries)[list * columns.entries->size() / lists];
    scores.add(list, entries.positions, weights);
  }
}

void TokenWeights::replace(PositionScores& scores) const {
  if (scores.empty()) scores.start(lists);
  for (std::size_t list = 0; list < lists; ++list) {
    scores.replace(list, {data + list * stride, columns.sinks.size()});
  }
}

}  // namespace terrace
