// Attention to a tile of rows and the second pass that gives its weights, against attention alone.
#include <algorithm>
#include <cmath>

#include "kernels/expected.hpp"
#include "kernels/questions.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/core/version.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::bench {
namespace {

constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 1, .head_dim = 128};
constexpr std::size_t tokens_max = 512;
constexpr std::size_t rows_max = 2048;

/// A piece of a prompt whose last token sees all rows.
class WeighedTile {
 public:
  static Result<std::shared_ptr<WeighedTile>> create(bool quick) {
    auto tile = std::make_shared<WeighedTile>();
    tile->tokens_ = quick ? 16 : tokens_max;
    tile->row_count_ = quick ? 256 : rows_max;
    TERRACE_ASSIGN(tile->rows_, SampleRows::create(shape, tile->row_count_, 4));
    tile->query_ = normal_numbers(tile->tokens_ * shape.query_heads * shape.head_dim, 6);
    tile->output_.resize(tile->query_.size());
    tile->state_.resize(tile_state_floats(shape, tile->tokens_));
    tile->weights_.resize(tile->row_count_);
    kernels::reference::tile_attention(tile->op());
    kernels::reference::tile_weights(tile->weigh_op());
    tile->expected_output_ = tile->output_;
    tile->expected_weights_ = tile->weights_;
    return tile;
  }

  void attend() {
    Serial serial;
    kernels::host::tile_attention(op(), serial);
  }
  void attend_and_weigh() {
    attend();
    Serial serial;
    std::ranges::fill(weights_, 0.0F);
    kernels::host::tile_weights(weigh_op(), serial);
  }

  [[nodiscard]] Status verify() const { return expect_near(output_, expected_output_); }
  /// A row's weights are 2,048 numbers that add up to about 1.
  [[nodiscard]] Status verify_weights() const {
    TERRACE_TRY(verify());
    return expect_near(weights_, expected_weights_);
  }

 private:
  [[nodiscard]] TileAttention op() {
    const std::size_t stride = shape.query_heads * shape.head_dim;
    return {.shape = shape,
            .query = query_.data(),
            .query_stride = stride,
            .tokens = tokens_,
            .rows = rows_->table(),
            .row_count = row_count_,
            .seen = static_cast<std::ptrdiff_t>(row_count_ - tokens_ + 1),
            .state = state_.data(),
            .first = true,
            .output = output_.data(),
            .output_stride = stride,
            .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim))};
  }
  [[nodiscard]] TileWeights weigh_op() {
    return {.tile = op(), .weights = {.sums = weights_.data(), .stride = row_count_}};
  }

  std::size_t tokens_ = 0;
  std::size_t row_count_ = 0;
  std::shared_ptr<SampleRows> rows_;
  std::vector<float> query_;
  std::vector<float> output_;
  std::vector<float> state_;
  std::vector<float> weights_;
  std::vector<float> expected_output_;
  std::vector<float> expected_weights_;
};

}  // namespace

std::vector<Question> tile_weights_questions() {
  const std::string name = "tile_weights_t512_n2048_g4_d128";
  const auto prepare = [name](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(const std::shared_ptr<WeighedTile> tile, WeighedTile::create(quick));
    return Contest{.ours = {.name = name,
                            .version = std::string(version()),
                            .run = [tile] { tile->attend_and_weigh(); },
                            .verify = [tile] { return tile->verify_weights(); }},
                   .peer = Contender{.name = "attention without weights",
                                     .version = std::string(version()),
                                     .run = [tile] { tile->attend(); },
                                     .verify = [tile] { return tile->verify(); }}};
  };
  return {{.name = name,
           .unit = "s",
           .better = Better::lower,
           .parameters = {{"threads", 1},
                          {"tokens", tokens_max},
                          {"rows", rows_max},
                          {"query_heads", shape.query_heads},
                          {"kv_heads", shape.kv_heads},
                          {"head_dim", shape.head_dim},
                          {"dtype", "f16"}},
           .prepare = prepare}};
}

}  // namespace terrace::bench
