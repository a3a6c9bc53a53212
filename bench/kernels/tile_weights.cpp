// Attention to a tile of rows and the second pass that gives its weights, against attention alone.
#include <algorithm>

#include "kernels/contender.hpp"
#include "kernels/questions.hpp"
#include "kernels/tile_piece.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::bench {
namespace {

constexpr const KvShape& weighed_shape = TilePiece::shape;
constexpr std::size_t tokens_max = 512;
constexpr std::size_t rows_max = 2048;

class WeighedTile {
 public:
  static Result<std::shared_ptr<WeighedTile>> create(bool quick) {
    auto tile = std::make_shared<WeighedTile>();
    TERRACE_ASSIGN(tile->piece_,
                   TilePiece::create(quick ? 16 : tokens_max, quick ? 256 : rows_max));
    tile->weights_.resize(tile->piece_.row_count);
    kernels::reference::tile_attention(tile->piece_.op());
    kernels::reference::tile_weights(tile->weigh_op());
    tile->expected_output_ = tile->piece_.output;
    tile->expected_weights_ = tile->weights_;
    return tile;
  }

  void attend() {
    Serial serial;
    kernels::host::tile_attention(piece_.op(), serial);
  }
  void attend_and_weigh() {
    attend();
    Serial serial;
    std::ranges::fill(weights_, 0.0F);
    kernels::host::tile_weights(weigh_op(), serial);
  }

  [[nodiscard]] Status verify() const { return expect_near(piece_.output, expected_output_); }
  /// A row's weights are 2,048 numbers that add up to about 1.
  [[nodiscard]] Status verify_weights() const {
    TERRACE_TRY(verify());
    return expect_near(weights_, expected_weights_);
  }

 private:
  [[nodiscard]] TileWeights weigh_op() {
    return {.tile = piece_.op(), .weights = {.sums = weights_.data(), .stride = piece_.row_count}};
  }

  TilePiece piece_;
  std::vector<float> weights_;
  std::vector<float> expected_output_;
  std::vector<float> expected_weights_;
};

}  // namespace

std::vector<Question> tile_weights_questions() {
  const std::string name = "tile_weights_t512_n2048_g4_d128";
  const auto prepare = [name](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(const std::shared_ptr<WeighedTile> tile, WeighedTile::create(quick));
    return Contest{
        .ours = contender(name, tile, &WeighedTile::attend_and_weigh, &WeighedTile::verify_weights),
        .peer = contender("attention without weights", tile, &WeighedTile::attend,
                          &WeighedTile::verify)};
  };
  return {{.name = name,
           .unit = "s",
           .better = Better::lower,
           .parameters = {{"threads", 1},
                          {"tokens", tokens_max},
                          {"rows", rows_max},
                          {"query_heads", weighed_shape.query_heads},
                          {"kv_heads", weighed_shape.kv_heads},
                          {"head_dim", weighed_shape.head_dim},
                          {"dtype", "f16"}},
           .prepare = prepare}};
}

}  // namespace terrace::bench
