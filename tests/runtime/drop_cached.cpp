#include "runtime/drop_cached.hpp"

#include "sequence/sequence_state.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::testing {

Status drop_cached(Sequence& sequence, double share, std::uint64_t seed) {
  SequenceState& state = state_of(sequence);
  const std::lock_guard lock(state.mutex);
  SequenceContext& context = state.parts.context;
  TERRACE_TRY(context.require(SequencePhase::idle));
  context.journal.note_loss();
  for (const auto& layer : state.parts.layers) {
    Rng rng(seed, {layer->number, context.length});
    TERRACE_TRY(context.await(WaitReason::compute, layer->tickets().attended));
    TERRACE_TRY(layer->cache->await_changes());
    layer->cache->drop_some(share, rng);
  }
  return {};
}

}  // namespace terrace::testing
