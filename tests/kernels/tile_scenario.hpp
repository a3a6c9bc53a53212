// Query tokens that attend to rows tile by tile, set up from a few numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/attention_shapes.hpp"
#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "kernels/kernel_run.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::testing {

struct TileCase {
  KvShape shape;
  std::size_t block_tokens = 32;
  std::size_t rows = 0;
  std::size_t tokens = 1;
  std::ptrdiff_t seen = 0;  // rows that token 0 sees
  std::size_t misalignment = 0;

  [[nodiscard]] std::string text() const {
    return to_text(shape) + ", " + std::to_string(rows) + " rows in blocks of " +
           std::to_string(block_tokens) + ", " + std::to_string(tokens) + " tokens that see from " +
           std::to_string(seen) + " on, misaligned by " + std::to_string(misalignment) + ", " +
           seed_text();
  }
};

class TileScenario {
 public:
  explicit TileScenario(const TileCase& options)
      : options_(options),
        store_(options.shape, options.block_tokens, options.rows, options.misalignment),
        query_(options.tokens * query_stride()),
        state_(tile_state_floats(options.shape, options.tokens), std::nanf("")),
        output_(options.tokens * output_stride(), std::nanf("")) {
    store_.fill_normal(1);
    Rng rng(seed(), {2});
    for (float& x : query_) x = normal(rng);
  }

  /// Returns the op of `count` tokens from `token` on over the tile of rows [begin, end), which
  /// begins with a block. The tile is the first one if it begins with row 0, and the last one if it
  /// ends with the last row.
  TileAttention op(std::size_t token, std::size_t count, TokenRange tile) {
    const KvShape& shape = options_.shape;
    const bool is_last = tile.end == options_.rows;
    const auto first_seen = static_cast<std::ptrdiff_t>(token) + options_.seen;
    return {.shape = shape,
            .query = query_.data() + token * query_stride(),
            .query_stride = query_stride(),
            .tokens = count,
            .rows = {store_.blocks().data() + tile.begin / options_.block_tokens,
                     options_.block_tokens},
            .row_count = tile.size(),
            .seen = first_seen - static_cast<std::ptrdiff_t>(tile.begin),
            .state = state_.data() + tile_state_floats(shape, token),
            .first = tile.begin == 0,
            .output = is_last ? output_.data() + token * output_stride() : nullptr,
            .output_stride = output_stride(),
            .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim))};
  }
  TileAttention op() { return op(0, options_.tokens, {0, options_.rows}); }

  /// Attends with `tokens` tokens a call to tiles of `tile_rows` rows, by each(call).
  template <typename Attend>
  std::vector<float> attend(std::size_t tokens, std::size_t tile_rows, Attend each) {
    std::fill_n(state_.data(), state_.size(), std::nanf(""));
    std::fill_n(output_.data(), output_.size(), std::nanf(""));
    for (std::size_t token = 0; token < options_.tokens; token += tokens) {
      const std::size_t count = std::min(tokens, options_.tokens - token);
      for (std::size_t row = 0; row == 0 || row < options_.rows; row += tile_rows) {
        each(op(token, count, {row, std::min(row + tile_rows, options_.rows)}));
      }
    }
    return packed_output();
  }
  std::vector<float> run(std::size_t tokens, std::size_t tile_rows) {
    return attend(tokens, tile_rows, [](const TileAttention& op) { testing::run(op); });
  }
  std::vector<float> run() { return run(options_.tokens, all_rows); }
  std::vector<float> run_reference() {
    return attend(options_.tokens, all_rows, kernels::reference::tile_attention);
  }

  [[nodiscard]] std::size_t query_floats() const {
    return options_.shape.query_heads * options_.shape.head_dim;
  }
  /// Adds up the weights of all rows, in calls of `tokens` tokens over tiles of `tile_rows` rows,
  /// by each(call): [lists of the scope, rows]. The state is there.
  template <typename Weigh>
  std::vector<float> weigh(ListScope scope, std::size_t tokens, std::size_t tile_rows, Weigh each) {
    const std::size_t lists = list_count(options_.shape, scope);
    const std::size_t stride = options_.rows + 3;
    Guarded<float> sums(lists * stride, 0.0F);
    for (std::size_t token = 0; token < options_.tokens; token += tokens) {
      const std::size_t count = std::min(tokens, options_.tokens - token);
      for (std::size_t row = 0; row < options_.rows; row += tile_rows) {
        each(TileWeights{.tile = op(token, count, {row, std::min(row + tile_rows, options_.rows)}),
                         .weights = {.scope = scope, .sums = sums.data(), .stride = stride},
                         .first_column = row});
      }
    }
    sums_intact_ &= sums.intact();
    std::vector<float> packed;
    for (std::size_t list = 0; list < lists; ++list) {
      const float* first = sums.data() + list * stride;
      packed.insert(packed.end(), first, first + options_.rows);
      sums_intact_ &= std::all_of(first + options_.rows, first + stride,
                                  [](float behind) { return behind == 0; });
    }
    return packed;
  }
  std::vector<float> weigh(ListScope scope) {
    return weigh(scope, options_.tokens, all_rows, [](const TileWeights& op) { testing::run(op); });
  }
  std::vector<float> weigh_reference(ListScope scope) {
    return weigh(scope, options_.tokens, all_rows, kernels::reference::tile_weights);
  }

  /// Returns whether no float beside the outputs was written.
  [[nodiscard]] bool guards_intact() {
    for (std::size_t i = 0; i < output_.size(); ++i) {
      if (i % output_stride() >= query_floats() && !std::isnan(output_[i])) return false;
    }
    return state_.intact() && output_.intact() && sums_intact_;
  }

  static constexpr std::size_t all_rows = std::size_t{1} << 20;

  TileCase options_;
  BlockStore store_;
  std::vector<float> query_;
  Guarded<float> state_;
  Guarded<float> output_;

 private:
  bool sums_intact_ = true;

  [[nodiscard]] std::size_t query_stride() const { return query_floats() + 5; }
  [[nodiscard]] std::size_t output_stride() const { return query_floats() + 3; }

  /// Returns the outputs without what lies between them.
  std::vector<float> packed_output() {
    std::vector<float> packed;
    for (std::size_t token = 0; token < options_.tokens; ++token) {
      const float* first = output_.data() + token * output_stride();
      packed.insert(packed.end(), first, first + query_floats());
    }
    return packed;
  }
};

/// Calls use(case) for each shape that the program takes.
template <typename Use>
void for_each_tile_shape(Use use) {
  for_each_attention_shape(attention_groups, [&](const KvShape& shape, std::size_t misalignment) {
    use(TileCase{.shape = shape,
                 .block_tokens = 3,
                 .rows = 50,
                 .tokens = 6,
                 .seen = 33,
                 .misalignment = misalignment});
  });
}

/// Calls use(case) for tiles in which tokens see no row, some rows or all rows.
template <typename Use>
void for_each_tile_seen(Use use) {
  std::size_t number = 0;
  for (const std::ptrdiff_t seen : {-40, -3, -1, 0, 1, 15, 31, 500, 511, 512, 690, 700, 9000}) {
    for (const std::size_t tokens : {1U, 2U, 17U, 40U}) {
      for (const std::size_t rows : {0U, 1U, 512U, 700U}) {
        if (!takes_shape(number++)) continue;
        use(TileCase{.shape = make_shape(2, 2, 16, Dtype::f16),
                     .rows = rows,
                     .tokens = tokens,
                     .seen = seen});
      }
    }
  }
}

inline std::vector<TileCase> tiles_of_largest_heads() {
  return {{.shape = make_shape(9, 1, 1024, Dtype::f32), .rows = 40, .tokens = 3, .seen = 37},
          {.shape = make_shape(4, 1, 1022, Dtype::bf16), .rows = 40, .tokens = 3, .seen = 37}};
}

}  // namespace terrace::testing
