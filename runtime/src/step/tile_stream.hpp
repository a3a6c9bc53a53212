// Brings all rows of a layer past attention, tile by tile: rows that lie on the host are copied to
// one of two places in device memory while attention reads the other; rows that lie in device
// memory stay where they are.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "lent_step_memory.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/core/ops.hpp"

namespace terrace {

class Layer;
class RuntimeState;
struct SequenceContext;

/// Query tokens of one sequence in a layer: queries of positions [first, first + tokens).
struct ExactQueries {
  const float* query = nullptr;
  std::size_t query_stride = 0;
  float* output = nullptr;
  std::size_t output_stride = 0;
  std::size_t first = 0;
  std::size_t tokens = 0;
};

/// Returns how many tokens a tile has: a multiple of a block's and of tile_split.
[[nodiscard]] std::size_t tile_tokens(std::size_t block_tokens) noexcept;

/// Threads  one at a time. Used on one compute queue until end_step()
class TileStream {
 public:
  /// `memory` has room for tiles, and for the queries' state, whenever something attends.
  TileStream(RuntimeState& runtime, LentStepMemory& memory) noexcept
      : runtime_(runtime), memory_(memory) {}

  /// Enqueues attention of the queries over all rows up to their own. New rows are in device
  /// memory once `stored` is done, or on the host once the layer's tickets().offloaded is.
  /// Returns the ticket of the last tile. Errors: out_of_memory, those of queues.
  Result<Ticket> attend(SequenceContext& context, Layer& layer, const ExactQueries& queries,
                        Ticket stored, Queue& compute);

  /// Enqueues the adding of the queries' attention weights to `weights`, whose columns are
  /// positions. They have just attended.
  Result<Ticket> weigh(SequenceContext& context, Layer& layer, const ExactQueries& queries,
                       const AttentionWeights& weights, Queue& compute);

  /// The step's memory has been given back, or left.
  void end_step() noexcept;

 private:
  struct Stage {
    Ticket copied;
    Ticket read;
  };

  /// A tile's attention, and its first position.
  using UseTile = FunctionRef<Result<Ticket>(const TileAttention& tile, std::size_t begin)>;
  /// Has all tiles in device memory in turn, behind work on `compute`.
  Result<Ticket> pass_tiles(SequenceContext& context, Layer& layer, const ExactQueries& queries,
                            Queue& compute, UseTile use);
  Result<BlockTable> place_blocks(Layer& layer, std::size_t blocks, Queue& compute);
  /// Copies blocks [begin, end) that are on the host alone. Returns whether there were any.
  Result<bool> copy_tile(SequenceContext& context, const Layer& layer, TokenRange blocks,
                         std::size_t tile);
  [[nodiscard]] Stage& stage_of(std::size_t tile) noexcept { return stages_[tile % 2]; }

  RuntimeState& runtime_;
  LentStepMemory& memory_;
  std::array<Stage, 2> stages_;
  std::vector<CopyExtent> extents_;
};

}  // namespace terrace
