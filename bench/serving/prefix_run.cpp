#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "serving/runs.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t question_tokens = 64;
constexpr std::size_t prefix_rounds = 3;

using Clock = std::chrono::steady_clock;

/// A secret that no other run has: prompts with other rows, or the same ones of an earlier run, are
/// never found.
std::string salt_of_run() {
  std::random_device random;
  return fmt::format("bench serving {:08x}{:08x}", random(), random());
}

/// Returns the name of a made-up prompt.
std::vector<TokenId> name_of(std::size_t count, std::uint64_t seed) {
  std::vector<TokenId> tokens;
  tokens.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back(TokenId{static_cast<std::uint32_t>(seed * count + i)});
  }
  return tokens;
}

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
    TERRACE_TRY(check_keeping());
    for (std::size_t round = 0; round < prefix_rounds; ++round) {
      const std::vector<TokenId> tokens = name_of(sizes_.context, round);
      const PrefixQuery query{.tokens = tokens, .salt = salt_};
      TERRACE_TRY(compute(query, round));
      TERRACE_TRY(find(query, round));
    }
    return std::move(figures_);
  }

 private:
  /// Refuses a policy without prefixes before its prompts are computed.
  Status check_keeping() {
    TERRACE_ASSIGN(const auto sequence, engine_.runtime().open_sequence());
    return sequence->publish({}).map([](const PublishReport& /*nothing*/) {});
  }

  [[nodiscard]] MadeUpPrompt prompt(std::uint64_t seed) const noexcept {
    return {.tokens = sizes_.context + question_tokens,
            .piece_tokens = sizes_.prefill_chunk,
            .seed = seed};
  }

  /// Computes prompt and question, and has the prompt kept.
  Status compute(const PrefixQuery& query, std::uint64_t seed) {
    TERRACE_ASSIGN(const auto served, engine_.announce(prompt(seed)));
    Duration stored{};
    if (sizes_.given_prompts) {
      TERRACE_ASSIGN(stored, engine_.store_until(*served, sizes_.context));
    }
    TERRACE_ASSIGN(const Duration wall, take_first_token(engine_, *served));
    figures_.computed.push_back(seconds(stored + wall));
    const TimePoint begin = Clock::now();
    TERRACE_ASSIGN(const PublishReport report, served->sequence->publish(query));
    figures_.published.push_back(seconds(Clock::now() - begin));
    if (report.chunks > 0) return {};
    return fail(Errc::unsupported, "a prompt of {} tokens has no whole chunk", sizes_.context);
  }

  /// Begins with the prompt, and computes the question.
  Status find(const PrefixQuery& query, std::uint64_t seed) {
    const TimePoint begin = Clock::now();
    TERRACE_ASSIGN(const auto served, engine_.find(prompt(seed), query));
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
  std::string salt_ = salt_of_run();
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
