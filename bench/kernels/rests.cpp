// Attention over what is selected and what groups have left, beside that over what is selected.
#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/contender.hpp"
#include "kernels/expected.hpp"
#include "kernels/questions.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t rests_chunk_tokens = 256;  // as policies have them
constexpr std::size_t rests_page_tokens = 64;

struct RestsSetting {
  std::string name;
  std::size_t tokens;
  std::size_t count;
  std::size_t group;
  std::size_t head_dim;
  std::size_t group_tokens;
};

/// One KV head's attention.
class Attending {
 public:
  static Result<std::shared_ptr<Attending>> create(const RestsSetting& setting, bool quick) {
    RestsSetting own = setting;
    if (quick) own.tokens = std::min<std::size_t>(4096, setting.tokens);
    own.count = std::min(setting.count, own.tokens / 8);
    auto made = std::make_shared<Attending>(own);
    TERRACE_ASSIGN(made->sample_, SampleRows::create(made->shape_, own.tokens, 31));
    made->prepare();
    return made;
  }

  explicit Attending(const RestsSetting& setting)
      : shape_{.layers = 1,
               .query_heads = setting.group,
               .kv_heads = 1,
               .head_dim = setting.head_dim},
        groups_{.page_tokens = rests_page_tokens,
                .groups = rests_page_tokens / setting.group_tokens},
        tokens_(setting.tokens),
        entries_(groups_.count(setting.tokens)),
        query_(normal_numbers(setting.group * setting.head_dim, 32)),
        output_(query_.size()),
        memory_(divide_up(tokens_, rests_chunk_tokens) *
                groups_.chunk_bytes(shape_, rests_chunk_tokens)),
        chunks_(cut_chunks(memory_, groups_.chunk_bytes(shape_, rests_chunk_tokens))),
        ids_(setting.count),
        rows_(setting.count),
        means_(entries_ * shape_.row_bytes()),
        pseudo_rows_(entries_),
        bias_(entries_),
        scratch_(estimate_scratch_floats(shape_, groups_, tokens_)),
        attention_scratch_(attention_scratch_floats(shape_, setting.count)) {}

  void run() {
    Serial threads;
    kernels::host::decode_attention(op(), threads);
  }
  /// Attention without the rests.
  void run_alone() {
    Serial threads;
    DecodeAttention alone = op();
    alone.rests = {};
    kernels::host::decode_attention(alone, threads);
  }

  [[nodiscard]] Status verify() const { return expect_near(output_, expected_, 1e-3F); }
  [[nodiscard]] Status verify_alone() const {
    const bool there = std::ranges::all_of(output_, [](float x) { return std::isfinite(x); });
    return there ? Status{} : fail(Errc::corrupt, "an output is not a number");
  }

 private:
  void prepare() {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      ids_[i] = static_cast<std::uint32_t>(i * (tokens_ / ids_.size()));
      rows_[i] = sample_->row(ids_[i]);
    }
    id_count_ = static_cast<std::uint32_t>(ids_.size());
    std::vector<std::uint8_t> group_of(rests_page_tokens);
    for (std::size_t i = 0; i < rests_page_tokens; ++i) {
      group_of[i] = static_cast<std::uint8_t>(i % groups_.groups);
    }
    for (std::size_t page = 0; page < tokens_ / rests_page_tokens; ++page) {
      kernels::host::average_groups({.shape = shape_,
                                     .groups = groups_,
                                     .index = index(),
                                     .page = page,
                                     .rows = sample_->table(),
                                     .group_of = group_of});
    }
    kernels::reference::decode_attention(op());
    expected_ = output_;
  }

  [[nodiscard]] IndexView index() const {
    return {.chunks = chunks_.data(), .chunk_tokens = rests_chunk_tokens, .token_count = tokens_};
  }
  [[nodiscard]] DecodeAttention op() {
    return {.shape = shape_,
            .query = query_.data(),
            .output = output_.data(),
            .selected = rows_.data(),
            .selected_count = &id_count_,
            .selected_stride = rows_.size(),
            .rests = {.candidates = {0, tokens_},
                      .groups = groups_,
                      .index = index(),
                      .ids = ids_.data(),
                      .most = entries_,
                      .means = means_.data(),
                      .pseudo = {.rows = pseudo_rows_.data(),
                                 .bias = bias_.data(),
                                 .count = &count_,
                                 .stride = entries_},
                      .scratch = scratch_.data()},
            .scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim)),
            .scratch = attention_scratch_.data()};
  }

  KvShape shape_;
  GroupShape groups_;
  std::size_t tokens_;
  std::size_t entries_;
  std::shared_ptr<SampleRows> sample_;
  std::vector<float> query_;
  std::vector<float> output_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> chunks_;
  std::vector<std::uint32_t> ids_;
  std::uint32_t id_count_ = 0;
  std::vector<std::byte*> rows_;
  std::vector<std::byte> means_;
  std::vector<const std::byte*> pseudo_rows_;
  std::vector<float> bias_;
  std::uint32_t count_ = 0;
  std::vector<float> scratch_;
  std::vector<float> attention_scratch_;
  std::vector<float> expected_;
};

Question rests_question(const RestsSetting& setting) {
  const auto prepare = [setting](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(const auto attending, Attending::create(setting, quick));
    return Contest{.ours = contender(setting.name, attending, &Attending::run, &Attending::verify),
                   .peer = contender("attention over the selected rows", attending,
                                     &Attending::run_alone, &Attending::verify_alone)};
  };
  return {.name = setting.name,
          .unit = "s",
          .parameters = {{"threads", 1},
                         {"tokens", setting.tokens},
                         {"group_tokens", setting.group_tokens},
                         {"head_dim", setting.head_dim},
                         {"query_heads", setting.group},
                         {"selected", setting.count}},
          .prepare = prepare};
}

}  // namespace

std::vector<Question> rest_questions() {
  return {rests_question({"rests_g3_n3876_k189", 3876, 189, 3, 64, 32}),
          rests_question({"rests_g4_n16384_k1638", 16'384, 1638, 4, 128, 32}),
          rests_question({"rests_g4_n131072_k1024", 131'072, 1024, 4, 128, 32})};
}

}  // namespace terrace::bench
