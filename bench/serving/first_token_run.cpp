#include <fmt/core.h>

#include <memory>
#include <utility>

#include "serving/headline_run.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t first_token_rounds = 3;

struct FirstToken {
  Duration prompt{};
  Duration step{};
  Duration index_wait{};
};

Result<FirstToken> take_first_token(ServingEngine& engine, const HeadlineSizes& sizes,
                                    std::uint64_t seed) {
  TERRACE_ASSIGN(const auto served,
                 engine.announce(
                     {.tokens = sizes.context, .piece_tokens = sizes.prefill_chunk, .seed = seed}));
  FirstToken token;
  TERRACE_ASSIGN(token.prompt, engine.store_until(*served, sizes.context));
  const auto waited = [&] {
    return served->sequence->counters().waits[static_cast<std::size_t>(WaitReason::index)];
  };
  const Duration before = waited();
  TERRACE_ASSIGN(const StepTimes times, engine.step(served->next()));
  token.step = times.wall;
  token.index_wait = waited() - before;
  return token;
}

}  // namespace

Result<FirstTokenFigures> time_first_tokens(const ServingOptions& options,
                                            const HeadlineSizes& sizes, const Say& say) {
  FirstTokenFigures figures;
  for (const UntilReady until_ready : {UntilReady::wait, UntilReady::exact}) {
    const bool waits = until_ready == UntilReady::wait;
    ServingOptions own = options;
    own.runtime.until_ready = until_ready;
    TERRACE_ASSIGN(const auto engine, ServingEngine::create(own));
    for (std::size_t round = 0; round < first_token_rounds; ++round) {
      say(fmt::format("first token {} of {}, {} its index", round + 1, first_token_rounds,
                      waits ? "with" : "without"));
      TERRACE_ASSIGN(const FirstToken token, take_first_token(*engine, sizes, round));
      const double until_then = seconds(token.prompt + token.step);
      (waits ? figures.indexed : figures.exact).push_back(until_then);
      if (!waits) continue;
      figures.prompt.push_back(seconds(token.prompt));
      figures.index_wait.push_back(seconds(token.index_wait));
    }
  }
  return figures;
}

}  // namespace terrace::bench
