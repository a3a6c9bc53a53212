#include "tile_stream.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sequence/layer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

std::size_t tile_tokens(std::size_t block_tokens) noexcept {
  // Long enough that a copy takes longer than to wake who makes it.
  constexpr std::size_t about = 2048;
  const std::size_t least = std::lcm(tile_split, block_tokens);
  return std::max(least, about / least * least);
}

void TileStream::end_step() noexcept { stages_ = {}; }

Result<BlockTable> TileStream::place_blocks(Layer& layer, std::size_t blocks, Queue& compute) {
  const std::size_t block_tokens = runtime_.options.block_tokens;
  if (layer.rows.all_on_device(blocks)) return layer.rows.device_table();
  TERRACE_ASSIGN(const StepMemory::Table* const table, memory_.next_table(blocks));
  const std::size_t of_tile = tile_tokens(block_tokens) / block_tokens;
  for (std::size_t block = 0; block < blocks; ++block) {
    std::byte* const staged =
        memory_.get().tiles[block / of_tile % 2].data() + block % of_tile * runtime_.block_bytes();
    table->host.as<std::byte*>()[block] =
        layer.rows.absent(block) ? staged : layer.rows.on_device(block);
  }
  const CopyExtent extent{table->device.data(), table->host.data(), blocks * sizeof(std::byte*)};
  TERRACE_TRY(compute.copy(Phase::update, {&extent, 1}));
  return BlockTable{.blocks = table->device.as<std::byte*>(), .block_tokens = block_tokens};
}

Result<bool> TileStream::copy_tile(SequenceContext& context, const Layer& layer, TokenRange blocks,
                                   std::size_t tile) {
  Stage& stage = stage_of(tile);
  extents_.clear();
  for (std::size_t block = blocks.begin; block < blocks.end; ++block) {
    if (!layer.rows.absent(block)) continue;
    std::byte* const to = memory_.get().tiles[tile % 2].data() +
                          (block - blocks.begin) * context.runtime.block_bytes();
    extents_.push_back({to, layer.rows.on_host(block), context.runtime.block_bytes()});
  }
  if (extents_.empty()) return false;
  Queue& refill = context.lanes.refill();
  TERRACE_TRY(refill.wait_for(stage.read));
  // New rows may be on their way there.
  TERRACE_TRY(refill.wait_for(layer.rows.tickets.offloaded));
  TERRACE_ASSIGN(stage.copied, refill.copy(Phase::fetch, extents_));
  context.counters.bytes.streamed += extents_.size() * context.runtime.block_bytes();
  return true;
}

Result<Ticket> TileStream::attend(SequenceContext& context, Layer& layer,
                                  const ExactQueries& queries, Ticket stored, Queue& compute) {
  TERRACE_TRY(compute.wait_for(stored));
  return pass_tiles(context, layer, queries, compute,
                    [&](const TileAttention& tile, std::size_t /*begin*/) {
                      return context.backend().ops().tile_attention(compute, Phase::attend, tile);
                    });
}

Result<Ticket> TileStream::weigh(SequenceContext& context, Layer& layer,
                                 const ExactQueries& queries, const AttentionWeights& weights,
                                 Queue& compute) {
  return pass_tiles(context, layer, queries, compute,
                    [&](const TileAttention& tile, std::size_t begin) {
                      return context.backend().ops().tile_weights(
                          compute, Phase::attend,
                          TileWeights{.tile = tile, .weights = weights, .first_column = begin});
                    });
}

Result<Ticket> TileStream::pass_tiles(SequenceContext& context, Layer& layer,
                                      const ExactQueries& queries, Queue& compute, UseTile use) {
  const std::size_t block_tokens = context.block_tokens();
  const std::size_t end = queries.first + queries.tokens;
  const std::size_t size = tile_tokens(block_tokens);
  TERRACE_ASSIGN(const BlockTable table,
                 place_blocks(layer, divide_up(end, block_tokens), compute));
  TileAttention tile{.shape = context.shape(),
                     .query = queries.query,
                     .query_stride = queries.query_stride,
                     .tokens = queries.tokens,
                     .state = memory_.get().state.as<float>(),
                     .first = true,
                     .output_stride = queries.output_stride,
                     .scale = context.shape().logit_scale()};
  Ticket attended;
  for (std::size_t begin = 0; begin < end; begin += size) {
    const std::size_t tile_end = std::min(begin + size, end);
    const TokenRange blocks{begin / block_tokens, divide_up(tile_end, block_tokens)};
    Stage& stage = stage_of(begin / size);
    TERRACE_ASSIGN(const bool copied, copy_tile(context, layer, blocks, begin / size));
    if (copied) TERRACE_TRY(compute.wait_for(stage.copied));
    tile.rows = {.blocks = table.blocks + blocks.begin, .block_tokens = block_tokens};
    tile.row_count = tile_end - begin;
    tile.seen = static_cast<std::ptrdiff_t>(queries.first + 1) - static_cast<std::ptrdiff_t>(begin);
    if (tile_end == end) tile.output = queries.output;
    TERRACE_ASSIGN(attended, use(tile, begin));
    stage.read = attended;
    tile.first = false;
  }
  // Host pages are read until the last tile has been copied.
  for (const Stage& stage : stages_) {
    if (stage.copied.queue == &context.lanes.refill()) layer.tickets().refilled = stage.copied;
  }
  return attended;
}

}  // namespace terrace
