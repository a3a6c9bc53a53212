// Brings all rows of a layer past attention, tile by tile: rows that lie on the host are copied to
// one of two places in device memory while attention reads the other; rows that lie in device
// memory stay where they are.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include "lent_step_memory.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/core/ops.hpp"

namespace terrace {

class Layer;
struct SequenceWork;

/// Query tokens of one sequence in a layer: queries of positions [first, first + tokens).
struct ExactQueries {
  const float* query = nullptr;
  std::size_t query_stride = 0;
  float* output = nullptr;
  std::size_t output_stride = 0;
  std::size_t first = 0;
  std::size_t tokens = 0;
};

/// Threads  one at a time. Used on one compute queue until end_step()
class TileStream {
 public:
  /// `memory` has room for tiles, and for the state of some queries, whenever something attends.
  TileStream(const RuntimePlan& plan, LentStepMemory& memory) noexcept
      : plan_(plan), memory_(memory) {}

  /// Enqueues attention of the queries over all rows up to their own, as many queries at a time as
  /// `memory` has state for. New rows are in device memory once work before on `compute` is done,
  /// or on the host once the layer's tickets().offloaded is. Adds the queries' attention weights to
  /// `weights`, whose columns are positions, if it is not null.
  /// Returns the ticket of the last tile. Errors: out_of_memory, those of queues.
  Result<Ticket> attend(SequenceWork& work, Layer& layer, const ExactQueries& queries,
                        Queue& compute, const AttentionWeights* weights = nullptr);

  /// The step's memory has been given back, or left.
  void end_step() noexcept;

 private:
  /// A place for a tile in device memory.
  struct Stage {
    Ticket copied;
    Ticket read;
    std::size_t tile = none;  ///< of the layer under way, that lies there; none = another layer's
  };
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  /// A layer whose rows pass.
  struct Passage {
    SequenceWork& work;
    Layer& layer;
    BlockTable table;  ///< of all blocks, as they lie while their tile is there
    std::size_t end;   ///< of the rows
    Queue& compute;
  };
  using UseTile = FunctionRef<Result<Ticket>(const TileAttention& tile, std::size_t begin)>;

  Result<BlockTable> place_blocks(const Layer& layer, std::size_t blocks, Queue& compute);
  /// Brings all tiles that `queries` see to device memory in turn, after work on the compute queue.
  Result<Ticket> pass_tiles(const Passage& passage, const ExactQueries& queries, UseTile use);
  /// Has the blocks of a tile that are on the host alone in device memory.
  Status bring_tile(const Passage& passage, std::size_t tile);
  [[nodiscard]] Stage& stage_of(std::size_t tile) noexcept { return stages_[tile % 2]; }

  const RuntimePlan& plan_;
  LentStepMemory& memory_;
  std::array<Stage, 2> stages_;
  std::vector<std::uint32_t> blocks_;
  std::vector<CopyExtent> extents_;
};

}  // namespace terrace
