// Decode attention of one group of query heads, against reading the same memory; on two threads,
// against one.
#include "terrace/kernels/attention.hpp"

#include <cmath>

#include "kernels/expected.hpp"
#include "kernels/memory_read.hpp"
#include "kernels/questions.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/core/version.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/offload/parallel.hpp"

namespace terrace::bench {
namespace {

struct AttentionSetting {
  std::string name;
  std::size_t group = 4;
  std::size_t head_dim = 128;
  bool gathered = false;
  std::size_t threads = 1;  ///< of more, one thread is the peer
};

/// The attention of one step over all rows, or over some of them through pointers.
class Attention {
 public:
  static Result<std::shared_ptr<Attention>> create(const AttentionSetting& setting, bool quick) {
    auto step = std::make_shared<Attention>();
    TERRACE_ASSIGN(step->threads_, offload::make_parallel({.threads = setting.threads}));
    step->shape_ = {
        .layers = 1, .query_heads = setting.group, .kv_heads = 1, .head_dim = setting.head_dim};
    const std::size_t bytes = std::size_t{1} << (quick ? 20 : 28);
    const std::size_t tokens = bytes / step->shape_.row_bytes();
    TERRACE_ASSIGN(step->rows_, SampleRows::create(step->shape_, tokens, 4));
    if (setting.gathered) {
      for (const std::uint32_t position : shuffled(tokens, 5)) {
        step->selected_.push_back(step->rows_->row(position));
      }
      // As many as a large budget selects; the region they lie in fits no cache.
      step->selected_.resize(std::max<std::size_t>(tokens / 8, 1));
      step->selected_count_ = static_cast<std::uint32_t>(step->selected_.size());
    } else {
      step->window_ = {0, tokens};
    }
    step->query_ = normal_numbers(step->shape_.query_heads * setting.head_dim, 6);
    step->output_.resize(step->query_.size());
    step->scratch_.resize(attention_scratch_floats(step->shape_, step->entries()));
    step->set_expected();
    return step;
  }

  [[nodiscard]] std::size_t entries() const noexcept { return window_.size() + selected_count_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return entries() * shape_.row_bytes(); }
  [[nodiscard]] const std::shared_ptr<SampleRows>& rows() const noexcept { return rows_; }

  /// Returns the same step over the same rows, with results of its own.
  [[nodiscard]] std::shared_ptr<Attention> on_one_thread() const {
    auto step = std::make_shared<Attention>(*this);
    step->threads_ = std::make_shared<Serial>();
    return step;
  }

  void run() { kernels::host::decode_attention(op(), *threads_); }

  [[nodiscard]] Status verify() const { return expect_near(output_, expected_); }

 private:
  [[nodiscard]] DecodeAttention op() {
    return {.shape = shape_,
            .query = query_.data(),
            .output = output_.data(),
            .resident = rows_->table(),
            .window = window_,
            .selected = selected_.data(),
            .selected_count = &selected_count_,
            .selected_stride = selected_.size(),
            .scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)),
            .scratch = scratch_.data()};
  }

  void set_expected() {
    kernels::reference::decode_attention(op());
    expected_ = output_;
  }

  KvShape shape_;
  std::shared_ptr<Parallel> threads_;
  std::shared_ptr<SampleRows> rows_;
  std::vector<std::byte*> selected_;
  std::uint32_t selected_count_ = 0;
  TokenRange window_;
  std::vector<float> query_;
  std::vector<float> output_;
  std::vector<float> expected_;
  std::vector<float> scratch_;
};

Contender attention_contender(const std::string& name, const std::shared_ptr<Attention>& step) {
  return {.name = name,
          .version = std::string(version()),
          .bytes = static_cast<double>(step->bytes()),
          .run = [step] { step->run(); },
          .verify = [step] { return step->verify(); }};
}

Question attention_question(const AttentionSetting& setting) {
  const auto prepare = [setting](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(const std::shared_ptr<Attention> step, Attention::create(setting, quick));
    return Contest{.ours = attention_contender(setting.name, step),
                   .peer = setting.threads == 1
                               ? memory_read(step->rows()->memory())
                               : attention_contender("one thread", step->on_one_thread())};
  };
  return {.name = setting.name,
          .unit = "B/s",
          .better = Better::higher,
          .parameters = {{"threads", setting.threads},
                         {"query_heads", setting.group},
                         {"kv_heads", 1},
                         {"head_dim", setting.head_dim},
                         {"dtype", "f16"},
                         {"rows", setting.gathered ? "scattered" : "contiguous"}},
          .prepare = prepare};
}

}  // namespace

std::vector<Question> attention_questions() {
  return {
      attention_question({.name = "decode_attention_g4_d128_f16_contiguous"}),
      attention_question({.name = "decode_attention_g4_d64_f16_contiguous", .head_dim = 64}),
      attention_question(
          {.name = "decode_attention_g4_d64_f16_gathered", .head_dim = 64, .gathered = true}),
      attention_question(
          {.name = "decode_attention_g1_d64_f16_contiguous", .group = 1, .head_dim = 64}),
      attention_question(
          {.name = "decode_attention_g4_d128_f16_contiguous_two_threads", .threads = 2}),
  };
}

}  // namespace terrace::bench
