#include "layer_index.hpp"

#include "sequence/sequence_context.hpp"

namespace terrace {

void LayerIndex::read_members(const SequenceContext& context) {
  if (!members_stale) return;
  IndexView view = host.view(context.layout(), coverage.tokens.begin);
  view.token_count = coverage.tokens.size();
  members.read(context.policy(), context.shape(), context.layout(), view);
  members_stale = false;
}

}  // namespace terrace
