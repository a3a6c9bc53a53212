// Selecting by a quarter of the channels of each key, beside selecting by all of them at once.
#include <algorithm>
#include <memory>

#include "kernels/contender.hpp"
#include "kernels/questions.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/rows.hpp"
#include "terrace/kernels/select.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t head_dim = 128;
constexpr std::size_t chunk_tokens = 64;  // as policies have them
constexpr std::size_t selected_rows = 1024;

struct Setting {
  std::string name;
  std::size_t tokens;
  std::size_t group;
  ChannelShape channels{.count = head_dim / 4};
};

/// One KV head's selection.
class Selecting {
 public:
  static Result<std::shared_ptr<Selecting>> create(const Setting& setting, bool quick) {
    const KvShape shape{
        .layers = 1, .query_heads = setting.group, .kv_heads = 1, .head_dim = head_dim};
    const std::size_t tokens = quick ? 4096 : setting.tokens;
    TERRACE_ASSIGN(const std::shared_ptr<SampleRows> rows, SampleRows::create(shape, tokens, 9));
    auto selecting = std::make_shared<Selecting>(shape, setting.channels, tokens);
    Serial alone;
    TERRACE_TRY(kernels::host::key_copy(
        {shape, rows->table(), {0, tokens}, selecting->view(selecting->key_chunks_)}, alone));
    TERRACE_TRY(kernels::host::key_channels({.shape = shape,
                                             .rows = rows->table(),
                                             .tokens = {0, tokens},
                                             .channels = setting.channels,
                                             .index = selecting->view(selecting->chunks_)}));
    kernels::reference::channel_select(selecting->op());
    selecting->expected_ = selecting->ids_;
    return selecting;
  }

  Selecting(const KvShape& shape, ChannelShape channels, std::size_t tokens)
      : shape_(shape),
        channels_(channels),
        tokens_(tokens),
        query_(normal_numbers(shape.query_heads * head_dim, 10)),
        memory_(tokens * shape.token_bytes() / 2),
        key_memory_(memory_.size()),
        chunks_(cut_chunks(memory_, chunk_tokens * shape.token_bytes() / 2)),
        key_chunks_(cut_chunks(key_memory_, chunk_tokens * shape.token_bytes() / 2)),
        ids_(std::min(selected_rows, tokens / 4)),
        scratch_(selection_scratch_floats(shape, tokens)) {}

  void run() {
    Serial threads;
    kernels::host::channel_select(op(), threads);
  }
  /// By whole keys.
  void run_exact() {
    Serial threads;
    kernels::host::exact_select({common(), view(key_chunks_)}, threads);
  }

  [[nodiscard]] Status verify() const {
    return check_selected({ids_.data(), id_count_}, expected_, expected_.size() / 100);
  }
  [[nodiscard]] Status verify_exact() const {
    return id_count_ == ids_.size() ? Status{} : fail(Errc::corrupt, "not as many as wanted");
  }

 private:
  [[nodiscard]] IndexView view(const std::vector<std::byte*>& chunks) const {
    return {.chunks = chunks.data(), .chunk_tokens = chunk_tokens, .token_count = tokens_};
  }
  [[nodiscard]] SelectCommon common() {
    return {.shape = shape_,
            .query = query_.data(),
            .candidates = {0, tokens_},
            .count = {.mean = ids_.size()},
            .ids = ids_.data(),
            .id_count = &id_count_,
            .id_stride = ids_.size(),
            .scratch = scratch_.data()};
  }
  [[nodiscard]] ChannelSelect op() { return {common(), channels_, view(chunks_)}; }

  KvShape shape_;
  ChannelShape channels_;
  std::size_t tokens_;
  std::vector<float> query_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> key_memory_;
  std::vector<std::byte*> chunks_;
  std::vector<std::byte*> key_chunks_;
  std::vector<std::uint32_t> ids_;
  std::uint32_t id_count_ = 0;
  std::vector<float> scratch_;
  std::vector<std::uint32_t> expected_;
};

Question question(const Setting& setting) {
  const auto prepare = [setting](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(const auto selecting, Selecting::create(setting, quick));
    return Contest{.ours = contender(setting.name, selecting, &Selecting::run, &Selecting::verify),
                   .peer = contender("whole keys", selecting, &Selecting::run_exact,
                                     &Selecting::verify_exact)};
  };
  return {.name = setting.name,
          .unit = "s",
          .parameters = {{"threads", 1},
                         {"tokens", setting.tokens},
                         {"channels", setting.channels.count},
                         {"head_dim", head_dim},
                         {"query_heads", setting.group},
                         {"selected", selected_rows}},
          .prepare = prepare};
}

}  // namespace

std::vector<Question> channel_questions() {
  return {question({"channel_select_g4_n16384_r32", 16'384, 4}),
          question({"channel_select_g4_n131072_r32", 131'072, 4}),
          question({"channel_select_g1_n131072_r32", 131'072, 1})};
}

}  // namespace terrace::bench
