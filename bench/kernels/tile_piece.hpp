// A piece of a prompt; its last token attends to all rows of a tile.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "kernels/expected.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/core/ops.hpp"

namespace terrace::bench {

struct TilePiece {
  static constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 1, .head_dim = 128};

  std::size_t tokens = 0;
  std::size_t row_count = 0;
  std::shared_ptr<SampleRows> rows = nullptr;
  std::vector<float> query = {};
  std::vector<float> output = {};
  std::vector<float> state = {};

  static Result<TilePiece> create(std::size_t tokens, std::size_t row_count) {
    TilePiece piece{.tokens = tokens, .row_count = row_count};
    TERRACE_ASSIGN(piece.rows, SampleRows::create(shape, row_count, 4));
    piece.query = normal_numbers(tokens * shape.query_heads * shape.head_dim, 6);
    piece.output.resize(piece.query.size());
    piece.state.resize(tile_state_floats(shape, tokens));
    return piece;
  }

  [[nodiscard]] TileAttention op() {
    const std::size_t stride = shape.query_heads * shape.head_dim;
    return {.shape = shape,
            .query = query.data(),
            .query_stride = stride,
            .tokens = tokens,
            .rows = rows->table(),
            .row_count = row_count,
            .seen = static_cast<std::ptrdiff_t>(row_count - tokens + 1),
            .state = state.data(),
            .first = true,
            .output = output.data(),
            .output_stride = stride,
            .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim))};
  }
};

}  // namespace terrace::bench
