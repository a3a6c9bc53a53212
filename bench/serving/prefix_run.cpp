#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "serving/runs.hpp"
#include "terrace/core/version.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t question_tokens = 64;
constexpr std::size_t prefix_rounds = 3;

using Clock = std::chrono::steady_clock;

/// The name of a made-up prompt. Another version of this program may make up other rows.
struct PromptName {
  std::vector<TokenId> tokens;
  std::string salt = fmt::format("bench serving {}", version());

  PromptName(std::size_t count, std::uint64_t seed) {
    tokens.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      tokens.push_back(TokenId{static_cast<std::uint32_t>(seed * count + i)});
    }
  }
  [[nodiscard]] PrefixQuery query() const { return {.tokens = tokens, .salt = salt}; }
};

/// Gives what is left of a prompt, and takes a step of a token behind it.
Result<Duration> take_first_token(ServingEngine& engine, ServedSequence& served) {
  Duration wall{};
  for (bool is_last = false; !is_last;) {
    is_last = served.prompt_tokens_left() == 0;
    TERRACE_ASSIGN(const StepTimes times, engine.step(served.next()));
    wall += times.wall;
  }
  TERRACE_TRY(engine.check_outputs(0));
  return wall;
}

class QuestionsBehindPrefixes {
 public:
  QuestionsBehindPrefixes(ServingEngine& engine, const ServingSizes& sizes)
      : engine_(engine), sizes_(sizes) {}

  Result<PrefixFigures> run() {
    for (std::size_t round = 0; round < prefix_rounds; ++round) {
      const PromptName name(sizes_.context, round);
      TERRACE_TRY(compute(name, round));
      TERRACE_TRY(find(name, round));
    }
    return std::move(figures_);
  }

 private:
  [[nodiscard]] MadeUpPrompt prompt(std::uint64_t seed) const noexcept {
    return {.tokens = sizes_.context + question_tokens,
            .piece_tokens = sizes_.prefill_chunk,
            .seed = seed};
  }

  /// Computes prompt and question, and has the prompt kept.
  Status compute(const PromptName& name, std::uint64_t seed) {
    TERRACE_ASSIGN(const auto served, engine_.announce(prompt(seed)));
    Duration stored{};
    if (sizes_.given_prompts) {
      TERRACE_ASSIGN(stored, engine_.store_until(*served, sizes_.context));
    }
    TERRACE_ASSIGN(const Duration wall, take_first_token(engine_, *served));
    figures_.computed.push_back(seconds(stored + wall));
    const TimePoint begin = Clock::now();
    TERRACE_TRY(served->sequence->publish(name.query()));
    figures_.published.push_back(seconds(Clock::now() - begin));
    return {};
  }

  /// Begins with the prompt, and computes the question.
  Status find(const PromptName& name, std::uint64_t seed) {
    const TimePoint begin = Clock::now();
    TERRACE_ASSIGN(const auto served, engine_.find(prompt(seed), name.query()));
    const Duration opened = Clock::now() - begin;
    figures_.found = served->sequence->length();
    if (figures_.found == 0) {
      return fail(Errc::unsupported, "no prefix of {} tokens was found in tiers below",
                  sizes_.context);
    }
    TERRACE_ASSIGN(const Duration wall, take_first_token(engine_, *served));
    figures_.behind.push_back(seconds(opened + wall));
    figures_.bytes_read = served->sequence->counters().store.read;
    return {};
  }

  ServingEngine& engine_;
  ServingSizes sizes_;
  PrefixFigures figures_;
};

}  // namespace

Result<PrefixFigures> question_behind_a_prefix(const ServingOptions& options,
                                               const ServingSizes& sizes) {
  ServingOptions own = options;
  own.runtime.prefixes.load = PrefixLoad::always;
  TERRACE_ASSIGN(const auto engine, ServingEngine::create(own));
  return QuestionsBehindPrefixes(*engine, sizes).run();
}

}  // namespace terrace::bench
