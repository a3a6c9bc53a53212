// Decode attention that gives its weights, against attention alone, in a step of a budget's length.
#include <cmath>

#include "kernels/contender.hpp"
#include "kernels/expected.hpp"
#include "kernels/questions.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::bench {
namespace {

constexpr KvShape shape{.layers = 1, .query_heads = 32, .kv_heads = 8, .head_dim = 128};
constexpr std::size_t entries_max = 3300;

/// A step's attention over a window.
class WeighedStep {
 public:
  static Result<std::shared_ptr<WeighedStep>> create(bool quick) {
    auto step = std::make_shared<WeighedStep>();
    step->entries_ = quick ? 100 : entries_max;
    constexpr std::size_t block = SampleRows::block_tokens;
    const std::size_t blocks = divide_up(step->entries_, block);
    TERRACE_ASSIGN(step->rows_, SampleRows::create(shape, blocks * block * shape.kv_heads, 4));
    for (std::size_t i = 0; i < blocks; ++i) {
      step->blocks_.push_back(step->rows_->row(i * block * shape.kv_heads));
    }
    step->query_ = normal_numbers(shape.query_heads * shape.head_dim, 6);
    step->output_.resize(step->query_.size());
    step->scratch_.resize(attention_scratch_floats(shape, step->entries_));
    step->weights_.resize(shape.kv_heads * step->entries_);
    step->logits_.resize(attention_weights_scratch_floats(shape, step->entries_));
    kernels::reference::decode_attention(step->op(true));
    step->expected_output_ = step->output_;
    step->expected_weights_ = step->weights_;
    return step;
  }

  void attend() {
    Serial serial;
    kernels::host::decode_attention(op(false), serial);
  }
  void attend_and_weigh() {
    Serial serial;
    kernels::host::decode_attention(op(true), serial);
  }

  [[nodiscard]] Status verify() const { return expect_near(output_, expected_output_); }
  /// A weight is about 4 / 3300.
  [[nodiscard]] Status verify_weights() const {
    TERRACE_TRY(verify());
    return expect_near(weights_, expected_weights_, 1e-6F);
  }

 private:
  [[nodiscard]] DecodeAttention op(bool weighs) {
    DecodeAttention attention{.shape = shape,
                              .query = query_.data(),
                              .output = output_.data(),
                              .resident = {blocks_.data(), SampleRows::block_tokens},
                              .window = {0, entries_},
                              .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim)),
                              .scratch = scratch_.data()};
    if (weighs) {
      attention.weights = {.sums = weights_.data(), .stride = entries_};
      attention.weights_scratch = logits_.data();
    }
    return attention;
  }

  std::size_t entries_ = 0;
  std::shared_ptr<SampleRows> rows_;
  std::vector<std::byte*> blocks_;
  std::vector<float> query_;
  std::vector<float> output_;
  std::vector<float> scratch_;
  std::vector<float> weights_;
  std::vector<float> logits_;
  std::vector<float> expected_output_;
  std::vector<float> expected_weights_;
};

}  // namespace

std::vector<Question> attention_weights_questions() {
  const std::string name = "attention_weights_n3300_h8_g4_d128";
  const auto prepare = [name](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(const std::shared_ptr<WeighedStep> step, WeighedStep::create(quick));
    return Contest{
        .ours = contender(name, step, &WeighedStep::attend_and_weigh, &WeighedStep::verify_weights),
        .peer = contender("attention without weights", step, &WeighedStep::attend,
                          &WeighedStep::verify)};
  };
  return {{.name = name,
           .unit = "s",
           .better = Better::lower,
           .parameters = {{"threads", 1},
                          {"entries", entries_max},
                          {"query_heads", shape.query_heads},
                          {"kv_heads", shape.kv_heads},
                          {"head_dim", shape.head_dim},
                          {"dtype", "f16"}},
           .prepare = prepare}};
}

}  // namespace terrace::bench
