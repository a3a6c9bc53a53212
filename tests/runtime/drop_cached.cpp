#include "runtime/drop_cached.hpp"

#include "api/sequence_state.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::testing {

Status drop_cached(Sequence& sequence, double share, std::uint64_t seed) {
  SequenceState& state = state_of(sequence);
  const std::lock_guard lock(state.mutex);
  SequenceParts& parts = state.parts;
  TERRACE_TRY(parts.progress.require(SequencePhase::idle));
  parts.work.journal.note_loss();
  for (const auto& layer : parts.layers) {
    Rng rng(seed, {layer->number, parts.progress.length()});
    TERRACE_TRY(parts.work.await(WaitReason::compute, layer->tickets().attended));
    TERRACE_TRY(layer->cache->await_changes());
    layer->cache->drop_some(share, rng);
  }
  return {};
}

}  // namespace terrace::testing
