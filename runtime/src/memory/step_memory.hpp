// Memory, and a queue, that a step needs beside its sequences', for as long as it is under way. The
// runtime lends it: it is as much as steps are under way at once, however many sequences there are.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "terrace/core/backend.hpp"

namespace terrace {

struct StepMemory {
  /// Where the blocks of a layer are while its tiles pass.
  struct Table {
    Buffer host;
    Buffer device;
  };

  std::array<Buffer, 2> tiles;  ///< rows of a tile each
  Buffer state;                 ///< TileAttention::state of some tokens of one sequence at a time
  Buffer queries;               ///< of a layer's tokens, converted to f32
  Buffer outputs;               ///< likewise, before they are converted
  std::shared_ptr<Queue> offload;  ///< by which rows and selections of all members leave
  std::vector<Table> tables;  ///< of layers and sequences of a step, in the order of their turns
};

}  // namespace terrace
