// Attention of many query tokens to a tile of rows, against decode attention token by token: the
// same rows are read once for all tokens, or once for each.
#include "kernels/contender.hpp"
#include "kernels/questions.hpp"
#include "kernels/tile_piece.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t token_count = 64;
constexpr const KvShape& tile_shape = TilePiece::shape;

class TileStep {
 public:
  static Result<std::shared_ptr<TileStep>> create(bool quick) {
    auto step = std::make_shared<TileStep>();
    TERRACE_ASSIGN(step->piece_, TilePiece::create(token_count, quick ? 256 : 4096));
    step->scratch_.resize(attention_scratch_floats(tile_shape, step->piece_.row_count));
    kernels::reference::tile_attention(step->piece_.op());
    step->expected_ = step->piece_.output;
    return step;
  }

  void attend_to_tile() {
    Serial serial;
    kernels::host::tile_attention(piece_.op(), serial);
  }

  void attend_token_by_token() {
    Serial serial;
    const TileAttention all = piece_.op();
    for (std::size_t token = 0; token < token_count; ++token) {
      kernels::host::decode_attention({.shape = tile_shape,
                                       .query = all.query + token * all.query_stride,
                                       .output = all.output + token * all.output_stride,
                                       .resident = all.rows,
                                       .window = {0, all.rows_seen(token)},
                                       .scale = all.scale,
                                       .scratch = scratch_.data()},
                                      serial);
    }
  }

  [[nodiscard]] Status verify() const { return expect_near(piece_.output, expected_); }

 private:
  TilePiece piece_;
  std::vector<float> expected_;
  std::vector<float> scratch_;
};

}  // namespace

std::vector<Question> tile_attention_questions() {
  const std::string name = "tile_attention_t64_n4096_g4_d128";
  const auto prepare = [name](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(const std::shared_ptr<TileStep> ours, TileStep::create(quick));
    TERRACE_ASSIGN(const std::shared_ptr<TileStep> peer, TileStep::create(quick));
    return Contest{.ours = contender(name, ours, &TileStep::attend_to_tile, &TileStep::verify),
                   .peer = contender("decode attention, token by token", peer,
                                     &TileStep::attend_token_by_token, &TileStep::verify)};
  };
  return {{.name = name,
           .unit = "s",
           .better = Better::lower,
           .parameters = {{"threads", 1},
                          {"tokens", token_count},
                          {"rows", 4096},
                          {"query_heads", tile_shape.query_heads},
                          {"kv_heads", tile_shape.kv_heads},
                          {"head_dim", tile_shape.head_dim},
                          {"dtype", "f16"}},
           .prepare = prepare}};
}

}  // namespace terrace::bench
