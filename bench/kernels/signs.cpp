// Selecting by one bit a channel beside the means of groups, next to selecting by whole keys.
#include "terrace/kernels/signs.hpp"

#include <algorithm>
#include <memory>

#include "kernels/choice.hpp"
#include "kernels/contender.hpp"
#include "kernels/questions.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t sign_head_dim = 128;
constexpr std::size_t sign_chunk_tokens = 256;  // as policies have them
constexpr std::size_t sign_page_tokens = 64;
constexpr std::size_t group_tokens = 16;
constexpr std::size_t sign_selected_rows = 1024;

struct SignSetting {
  std::string name;
  std::size_t tokens;
  std::size_t group;
};

/// The selection of one KV head.
class SignSelecting {
 public:
  static Result<std::shared_ptr<SignSelecting>> create(const SignSetting& setting, bool quick) {
    const KvShape shape{
        .layers = 1, .query_heads = setting.group, .kv_heads = 1, .head_dim = sign_head_dim};
    const std::size_t tokens = quick ? 4096 : setting.tokens;
    TERRACE_ASSIGN(const std::shared_ptr<SampleRows> rows, SampleRows::create(shape, tokens, 9));
    TERRACE_ASSIGN(WholeKeys keys, WholeKeys::create(shape, tokens, *rows));
    auto selecting = std::make_shared<SignSelecting>(
        Choice(shape, tokens, std::min(sign_selected_rows, tokens / 4)), std::move(keys));
    TERRACE_TRY(selecting->index(*rows));
    kernels::reference::sign_select(selecting->op());
    selecting->choice_.expect();
    return selecting;
  }

  SignSelecting(Choice choice, WholeKeys keys)
      : choice_(std::move(choice)),
        signs_(signs_of(choice_.shape())),
        keys_(std::move(keys)),
        memory_(choice_.tokens() / sign_chunk_tokens * chunk_bytes()),
        chunks_(cut_chunks(memory_, chunk_bytes())) {}

  void run() {
    Serial threads;
    kernels::host::sign_select(op(), threads);
  }
  /// By whole keys.
  void run_exact() {
    Serial threads;
    kernels::host::exact_select({choice_.common(), keys_.view()}, threads);
  }

  [[nodiscard]] Status verify() const { return choice_.verify(choice_.count() / 100); }
  [[nodiscard]] Status verify_exact() const { return choice_.verify_count(); }

 private:
  static SignShape signs_of(const KvShape& shape) {
    const GroupShape groups{.page_tokens = sign_page_tokens,
                            .groups = sign_page_tokens / group_tokens};
    return {.groups = groups, .chunk_begin = groups.chunk_bytes(shape, sign_chunk_tokens)};
  }
  [[nodiscard]] std::size_t chunk_bytes() const {
    return signs_.chunk_begin + signs_.chunk_bytes(choice_.shape(), sign_chunk_tokens);
  }

  /// Each token is of the group of its place.
  [[nodiscard]] Status index(const SampleRows& rows) {
    std::vector<std::uint8_t> group_of(sign_page_tokens);
    for (std::size_t i = 0; i < sign_page_tokens; ++i) {
      group_of[i] = static_cast<std::uint8_t>(i / group_tokens);
    }
    for (std::size_t page = 0; page < choice_.tokens() / sign_page_tokens; ++page) {
      kernels::host::average_groups({.shape = choice_.shape(),
                                     .groups = signs_.groups,
                                     .index = view(),
                                     .page = page,
                                     .rows = rows.table(),
                                     .group_of = group_of});
    }
    std::vector<float> keys(choice_.tokens() * sign_head_dim);
    TERRACE_TRY(kernels::host::read_keys({.shape = choice_.shape(),
                                          .rows = rows.table(),
                                          .tokens = {0, choice_.tokens()},
                                          .dims = sign_head_dim},
                                         keys.data()));
    kernels::host::sign_encode({.shape = choice_.shape(),
                                .signs = signs_,
                                .index = view(),
                                .tokens = {0, choice_.tokens()},
                                .grouped = true,
                                .keys = keys.data()});
    return {};
  }

  [[nodiscard]] IndexView view() const {
    return {.chunks = chunks_.data(),
            .chunk_tokens = sign_chunk_tokens,
            .token_count = choice_.tokens()};
  }
  [[nodiscard]] SignSelect op() { return {choice_.common(), signs_, view()}; }

  Choice choice_;
  SignShape signs_;
  WholeKeys keys_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> chunks_;
};

Question sign_question(const SignSetting& setting) {
  const auto prepare = [setting](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(const auto selecting, SignSelecting::create(setting, quick));
    return Contest{
        .ours = contender(setting.name, selecting, &SignSelecting::run, &SignSelecting::verify),
        .peer = contender("whole keys", selecting, &SignSelecting::run_exact,
                          &SignSelecting::verify_exact)};
  };
  return {.name = setting.name,
          .unit = "s",
          .parameters = {{"threads", 1},
                         {"tokens", setting.tokens},
                         {"group_tokens", group_tokens},
                         {"head_dim", sign_head_dim},
                         {"query_heads", setting.group},
                         {"selected", sign_selected_rows}},
          .prepare = prepare};
}

}  // namespace

std::vector<Question> sign_questions() {
  return {sign_question({"sign_select_g4_n16384", 16'384, 4}),
          sign_question({"sign_select_g4_n131072", 131'072, 4}),
          sign_question({"sign_select_g1_n131072", 131'072, 1})};
}

}  // namespace terrace::bench
