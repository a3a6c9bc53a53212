#include "layer_index.hpp"

#include "sequence/sequence_context.hpp"

namespace terrace {

Status LayerIndex::keep_replaced(Backend& backend, const IndexLayout& layout) {
  ReplacedIndex& kept = replaced.emplace();
  kept.coverage = coverage;
  kept.hints = build.hints;
  return coverage.tokens.empty() ? Status{} : kept.host.copy_from(host, backend, layout);
}

void LayerIndex::put_back_replaced() noexcept {
  coverage = std::move(replaced->coverage);
  build.hints = std::move(replaced->hints);
  if (!coverage.tokens.empty()) std::swap(host, replaced->host);
  building = false;
  ++epoch;
  members_stale = true;
}

void LayerIndex::read_members(const SequenceContext& context) {
  if (!members_stale) return;
  IndexView view = host.view(context.layout(), coverage.tokens.begin);
  view.token_count = coverage.tokens.size();
  members.read(context.policy(), context.shape(), context.layout(), view);
  members_stale = false;
}

}  // namespace terrace
