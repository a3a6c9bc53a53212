// The indexes of a sequence, all layers: their memory, and the parts that build, extend and renew
// them.
#pragma once

#include "index_builder.hpp"
#include "index_refresh.hpp"
#include "index_room.hpp"
#include "index_upkeep.hpp"
#include "prompt_indexer.hpp"
#include "services/sequence_services.hpp"

namespace terrace {

class SequenceIndexes {
 public:
  SequenceIndexes(const SequenceServices& services, LayerSpan layers);

  IndexRoom room;
  IndexBuilder builder;
  IndexUpkeep upkeep;
  PromptIndexer prompt;
  IndexRefresh refresh;

  /// Has ready what the next step reads.
  Status prepare();
  /// Brings all indexes back to the device. Errors: out_of_memory, those of queues.
  Status restore();

 private:
  const SequenceProgress& progress_;
  const SequenceMemory& memory_;
  LayerSpan layers_;
};

}  // namespace terrace
