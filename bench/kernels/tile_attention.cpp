// Attention of many query tokens to a tile of rows, against decode attention token by token: the
// same rows are read once for all tokens, or once for each.
#include <cmath>

#include "kernels/expected.hpp"
#include "kernels/questions.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/core/version.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t token_count = 64;
constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 1, .head_dim = 128};

/// A piece of a prompt whose last token sees all rows.
class TileStep {
 public:
  static Result<std::shared_ptr<TileStep>> create(bool quick) {
    auto step = std::make_shared<TileStep>();
    step->row_count_ = quick ? 256 : 4096;
    TERRACE_ASSIGN(step->rows_, SampleRows::create(shape, step->row_count_, 4));
    step->query_ = normal_numbers(token_count * shape.query_heads * shape.head_dim, 6);
    step->output_.resize(step->query_.size());
    step->state_.resize(tile_state_floats(shape, token_count));
    step->scratch_.resize(attention_scratch_floats(shape, step->row_count_));
    kernels::reference::tile_attention(step->op());
    step->expected_ = step->output_;
    return step;
  }

  void attend_to_tile() {
    Serial serial;
    kernels::host::tile_attention(op(), serial);
  }

  void attend_token_by_token() {
    Serial serial;
    const TileAttention all = op();
    for (std::size_t token = 0; token < token_count; ++token) {
      kernels::host::decode_attention({.shape = shape,
                                       .query = all.query + token * all.query_stride,
                                       .output = all.output + token * all.output_stride,
                                       .resident = all.rows,
                                       .window = {0, all.rows_seen(token)},
                                       .scale = all.scale,
                                       .scratch = scratch_.data()},
                                      serial);
    }
  }

  [[nodiscard]] Status verify() const { return expect_near(output_, expected_); }

 private:
  [[nodiscard]] TileAttention op() {
    const std::size_t stride = shape.query_heads * shape.head_dim;
    return {.shape = shape,
            .query = query_.data(),
            .query_stride = stride,
            .tokens = token_count,
            .rows = rows_->table(),
            .row_count = row_count_,
            .seen = static_cast<std::ptrdiff_t>(row_count_ - token_count + 1),
            .state = state_.data(),
            .first = true,
            .output = output_.data(),
            .output_stride = stride,
            .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim))};
  }

  std::size_t row_count_ = 0;
  std::shared_ptr<SampleRows> rows_;
  std::vector<float> query_;
  std::vector<float> output_;
  std::vector<float> expected_;
  std::vector<float> state_;
  std::vector<float> scratch_;
};

Contender contender(std::string name, const std::shared_ptr<TileStep>& step,
                    void (TileStep::*run)()) {
  return {.name = std::move(name),
          .version = std::string(version()),
          .run = [step, run] { (*step.*run)(); },
          .verify = [step] { return step->verify(); }};
}

}  // namespace

std::vector<Question> tile_attention_questions() {
  const std::string name = "tile_attention_t64_n4096_g4_d128";
  const auto prepare = [name](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(const std::shared_ptr<TileStep> ours, TileStep::create(quick));
    TERRACE_ASSIGN(const std::shared_ptr<TileStep> peer, TileStep::create(quick));
    return Contest{.ours = contender(name, ours, &TileStep::attend_to_tile),
                   .peer = contender("decode attention, token by token", peer,
                                     &TileStep::attend_token_by_token)};
  };
  return {{.name = name,
           .unit = "s",
           .better = Better::lower,
           .parameters = {{"threads", 1},
                          {"tokens", token_count},
                          {"rows", 4096},
                          {"query_heads", shape.query_heads},
                          {"kv_heads", shape.kv_heads},
                          {"head_dim", shape.head_dim},
                          {"dtype", "f16"}},
           .prepare = prepare}};
}

}  // namespace terrace::bench
