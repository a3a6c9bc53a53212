// Selecting by a quarter of the channels of each key, beside selecting by all of them at once.
#include <algorithm>
#include <memory>

#include "kernels/choice.hpp"
#include "kernels/contender.hpp"
#include "kernels/questions.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t head_dim = 128;
constexpr std::size_t chunk_tokens = 64;  // as policies have them
constexpr std::size_t selected_rows = 1024;

struct ChannelSetting {
  std::string name;
  std::size_t tokens;
  std::size_t group;
  ChannelShape channels{.count = head_dim / 4};
};

/// The selection of one KV head.
class Selecting {
 public:
  static Result<std::shared_ptr<Selecting>> create(const ChannelSetting& setting, bool quick) {
    const KvShape shape{
        .layers = 1, .query_heads = setting.group, .kv_heads = 1, .head_dim = head_dim};
    const std::size_t tokens = quick ? 4096 : setting.tokens;
    TERRACE_ASSIGN(const std::shared_ptr<SampleRows> rows, SampleRows::create(shape, tokens, 9));
    TERRACE_ASSIGN(WholeKeys keys, WholeKeys::create(shape, tokens, *rows));
    auto selecting =
        std::make_shared<Selecting>(Choice(shape, tokens, std::min(selected_rows, tokens / 4)),
                                    setting.channels, std::move(keys));
    TERRACE_TRY(kernels::host::key_channels({.shape = shape,
                                             .rows = rows->table(),
                                             .tokens = {0, tokens},
                                             .channels = setting.channels,
                                             .index = selecting->view()}));
    kernels::reference::channel_select(selecting->op());
    selecting->choice_.expect();
    return selecting;
  }

  Selecting(Choice choice, ChannelShape channels, WholeKeys keys)
      : choice_(std::move(choice)),
        channels_(channels),
        keys_(std::move(keys)),
        memory_(choice_.tokens() * choice_.shape().token_bytes() / 2),
        chunks_(cut_chunks(memory_, chunk_tokens * choice_.shape().token_bytes() / 2)) {}

  void run() {
    Serial threads;
    kernels::host::channel_select(op(), threads);
  }
  /// By whole keys.
  void run_exact() {
    Serial threads;
    kernels::host::exact_select({choice_.common(), keys_.view()}, threads);
  }

  [[nodiscard]] Status verify() const { return choice_.verify(choice_.count() / 100); }
  [[nodiscard]] Status verify_exact() const { return choice_.verify_count(); }

 private:
  [[nodiscard]] IndexView view() const {
    return {
        .chunks = chunks_.data(), .chunk_tokens = chunk_tokens, .token_count = choice_.tokens()};
  }
  [[nodiscard]] ChannelSelect op() { return {choice_.common(), channels_, view()}; }

  Choice choice_;
  ChannelShape channels_;
  WholeKeys keys_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> chunks_;
};

Question channel_question(const ChannelSetting& setting) {
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
  return {channel_question({"channel_select_g4_n16384_r32", 16'384, 4}),
          channel_question({"channel_select_g4_n131072_r32", 131'072, 4}),
          channel_question({"channel_select_g1_n131072_r32", 131'072, 1})};
}

}  // namespace terrace::bench
