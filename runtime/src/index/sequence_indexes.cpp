#include "sequence_indexes.hpp"

#include "layer/layer.hpp"

namespace terrace {

SequenceIndexes::SequenceIndexes(const SequenceServices& services, LayerSpan layers)
    : room(services, layers),
      builder(services, layers, room),
      upkeep(services, layers, room, builder),
      prompt(services, layers, room, builder, upkeep),
      refresh(services, layers, room, builder, upkeep),
      progress_(services.progress),
      memory_(services.memory),
      layers_(layers) {}

Status SequenceIndexes::prepare() {
  // First, while nothing is being coded: an index changes hands between two extensions.
  TERRACE_TRY(refresh.go_on());
  // A prompt that found no room for a larger index has left none.
  TERRACE_TRY(memory_.make_room([&] { return room.reserve(room.indexed_end()); }));
  TERRACE_TRY(upkeep.code_passed_tokens());
  if (room.streams()) TERRACE_TRY(room.device().prefetch(*layers_.front(), progress_.length()));
  room.ready = true;
  return {};
}

Status SequenceIndexes::restore() {
  TERRACE_TRY(room.reserve(room.indexed_end()));
  for (const auto& layer : layers_) {
    const TokenRange tokens = layer->index.image.coverage.tokens();
    if (tokens.empty()) continue;
    TERRACE_TRY(room.device().stage(*layer, tokens, /*with_fixed=*/true));
    TERRACE_TRY(room.device().send());
  }
  return {};
}

}  // namespace terrace
