#include "terrace/engine/prefill_attention.hpp"

#include <algorithm>
#include <atomic>

#include "attention_tile.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::engine {
namespace {

// Rows that share one conversion of a key tile to f32: enough to make the conversion cheap.
constexpr std::size_t tile_rows = 256;

std::size_t positions_per_tile(const KvShape& shape) noexcept {
  return std::max<std::size_t>(1, tile_rows / shape.group());
}

AttentionTile make_tile(const KvShape& shape, const PrefillChunk& chunk, std::size_t head,
                        std::size_t row) {
  const std::size_t stride = shape.query_heads * shape.head_dim;
  const std::size_t offset = row * stride + head * shape.group() * shape.head_dim;
  return {.query = chunk.query + offset,
          .out = chunk.out + offset,
          .kv = static_cast<const std::byte*>(chunk.kv) + head * chunk.capacity * shape.row_bytes(),
          .dtype = shape.dtype,
          .head_dim = shape.head_dim,
          .group = shape.group(),
          .position_stride = stride,
          .first_position = chunk.first_position + row,
          .positions = std::min(positions_per_tile(shape), chunk.rows - row)};
}

}  // namespace

Result<PrefillAttention> PrefillAttention::create(const KvShape& shape, std::size_t lanes) {
  TERRACE_TRY(shape.validate());
  PrefillAttention attention;
  attention.shape_ = shape;
  attention.lanes_ = std::max<std::size_t>(1, lanes);
  const std::size_t rows = positions_per_tile(shape) * shape.group();
  attention.lane_floats_ = align_up(AttentionScratch::floats(rows, shape.head_dim), 16);
  TERRACE_ASSIGN(const std::size_t floats,
                 checked_multiply(attention.lanes_, attention.lane_floats_));
  TERRACE_ASSIGN(attention.scratch_, FloatArray::create(floats));
  return attention;
}

void PrefillAttention::run(const PrefillChunk& chunk, Parallel& parallel) {
  TERRACE_ASSERT(chunk.first_position + chunk.rows <= chunk.capacity);
  const std::size_t positions = positions_per_tile(shape_);
  const std::size_t tiles = divide_up(chunk.rows, positions) * shape_.kv_heads;
  const std::size_t lanes = std::min({lanes_, parallel.concurrency(), tiles});
  std::atomic<std::size_t> next{0};
  // A part is a lane that owns scratch and takes tiles until none is left, the last rows first:
  // they see the most keys, and the longest job should not start last.
  parallel.for_each(lanes, [&](std::size_t lane) {
    for (std::size_t i = next++; i < tiles; i = next++) {
      const std::size_t tile = tiles - 1 - i;
      attend_tile(
          make_tile(shape_, chunk, tile % shape_.kv_heads, tile / shape_.kv_heads * positions),
          scratch_.data() + lane * lane_floats_);
    }
  });
}

}  // namespace terrace::engine
