#include "tile_stream.hpp"

#include <algorithm>

#include "layer/layer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

void TileStream::end_step() noexcept { stages_ = {}; }

Result<BlockTable> TileStream::place_blocks(const Layer& layer, std::size_t blocks,
                                            Queue& compute) {
  const std::size_t block_tokens = plan_.options.block_tokens;
  if (layer.rows.all_on_device(blocks)) return layer.rows.device_table();
  TERRACE_ASSIGN(const StepMemory::Table* const table, memory_.next_table(blocks));
  const std::size_t of_tile = memory_.tile_tokens() / block_tokens;
  for (std::size_t block = 0; block < blocks; ++block) {
    std::byte* const staged =
        memory_.get().tiles[block / of_tile % 2].data() + block % of_tile * plan_.block_bytes();
    table->host.as<std::byte*>()[block] =
        layer.rows.absent(block) ? staged : layer.rows.on_device(block);
  }
  const CopyExtent extent{table->device.data(), table->host.data(), blocks * sizeof(std::byte*)};
  TERRACE_TRY(compute.copy(Phase::update, {&extent, 1}));
  return BlockTable{.blocks = table->device.as<std::byte*>(), .block_tokens = block_tokens};
}

Status TileStream::bring_tile(const Passage& passage, std::size_t tile) {
  Stage& stage = stage_of(tile);
  if (stage.tile == tile) return {};
  const LayerRows& rows = passage.layer.rows;
  const std::size_t size = memory_.tile_tokens() / plan_.options.block_tokens;
  const std::size_t end =
      std::min(divide_up(passage.end, plan_.options.block_tokens), (tile + 1) * size);
  blocks_.clear();
  for (std::size_t block = tile * size; block < end; ++block) {
    if (rows.absent(block)) blocks_.push_back(static_cast<std::uint32_t>(block));
  }
  if (blocks_.empty()) return {};
  TERRACE_ASSIGN(const HostRows on_host, passage.layer.host_rows(blocks_));
  extents_.clear();
  for (const std::uint32_t block : blocks_) {
    std::byte* const to = memory_.get().tiles[tile % 2].data() + block % size * plan_.block_bytes();
    extents_.push_back({to, on_host.page(block), plan_.block_bytes()});
  }
  Queue& refill = passage.work.lanes.refill();
  TERRACE_TRY(refill.wait_for(stage.read));
  TERRACE_TRY(refill.wait_for(stage.copied));  // another member's copy, which was never read
  // New rows may be on their way there.
  TERRACE_TRY(refill.wait_for(rows.tickets.offloaded));
  TERRACE_ASSIGN(stage.copied, refill.copy(Phase::fetch, extents_));
  stage.tile = tile;
  // Host pages are read until the last tile has been copied.
  passage.layer.tickets().refilled = stage.copied;
  passage.work.counters.bytes.streamed += extents_.size() * plan_.block_bytes();
  return passage.compute.wait_for(stage.copied);
}

Result<Ticket> TileStream::attend(SequenceWork& work, Layer& layer, const ExactQueries& queries,
                                  Queue& compute, const AttentionWeights* weights) {
  const std::size_t end = queries.first + queries.tokens;
  TERRACE_ASSIGN(const BlockTable table,
                 place_blocks(layer, divide_up(end, plan_.block_tokens()), compute));
  for (Stage& stage : stages_) stage.tile = none;
  const Passage passage{work, layer, table, end, compute};
  const Ops& ops = work.backend.ops();
  Ticket attended;
  for (std::size_t begin = 0; begin < queries.tokens;) {
    ExactQueries some = queries;
    some.tokens = std::min(memory_.state_tokens(), queries.tokens - begin);
    some.first += begin;
    some.query += begin * queries.query_stride;
    some.output += begin * queries.output_stride;
    TERRACE_ASSIGN(attended, pass_tiles(passage, some, [&](const TileAttention& tile, std::size_t) {
                     return ops.tile_attention(compute, Phase::attend, tile);
                   }));
    if (weights != nullptr) {
      const auto weigh = [&](const TileAttention& tile, std::size_t first) {
        return ops.tile_weights(
            compute, Phase::attend,
            TileWeights{.tile = tile, .weights = *weights, .first_column = first});
      };
      TERRACE_ASSIGN(attended, pass_tiles(passage, some, weigh));
    }
    begin += some.tokens;
  }
  return attended;
}

Result<Ticket> TileStream::pass_tiles(const Passage& passage, const ExactQueries& queries,
                                      UseTile use) {
  const std::size_t block_tokens = plan_.options.block_tokens;
  const std::size_t end = queries.first + queries.tokens;
  const std::size_t size = memory_.tile_tokens();
  TileAttention tile{.shape = plan_.shape(),
                     .query = queries.query,
                     .query_stride = queries.query_stride,
                     .tokens = queries.tokens,
                     .state = memory_.get().state.as<float>(),
                     .first = true,
                     .output_stride = queries.output_stride,
                     .scale = plan_.shape().logit_scale()};
  Ticket used;
  for (std::size_t begin = 0; begin < end; begin += size) {
    const std::size_t tile_end = std::min(begin + size, end);
    TERRACE_TRY(bring_tile(passage, begin / size));
    tile.rows = {.blocks = passage.table.blocks + begin / block_tokens,
                 .block_tokens = block_tokens};
    tile.row_count = tile_end - begin;
    tile.seen = static_cast<std::ptrdiff_t>(queries.first + 1) - static_cast<std::ptrdiff_t>(begin);
    if (tile_end == end) tile.output = queries.output;
    TERRACE_ASSIGN(used, use(tile, begin));
    stage_of(begin / size).read = used;
    tile.first = false;
  }
  return used;
}

}  // namespace terrace
