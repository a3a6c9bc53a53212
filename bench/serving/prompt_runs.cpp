#include <memory>

#include "serving/runs.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t prompt_rounds = 5;

/// Takes all steps of a prompt that is alone, and returns their time.
Result<Duration> take_prompt(ServingEngine& engine, ServedSequence& served) {
  Duration wall{};
  while (served.prompt_tokens_left() > 0) {
    TERRACE_ASSIGN(const StepTimes times, engine.step(served.next()));
    wall += times.wall;
  }
  TERRACE_TRY(engine.check_outputs(0));
  return wall;
}

/// Takes a step of a token and checks its output: an index that is not the prompt's shows in it.
Status check_prompt(ServingEngine& engine, ServedSequence& served) {
  TERRACE_TRY(engine.step(served.next()));
  return engine.check_outputs(0);
}

}  // namespace

Result<PromptFigures> give_prompts(const ServingOptions& options, const ServingSizes& sizes) {
  TERRACE_ASSIGN(const auto engine, ServingEngine::create(options));
  const auto work = static_cast<double>(sizes.context * engine->runtime().options().shape.layers);
  PromptFigures figures;
  for (std::size_t round = 0; round < prompt_rounds; ++round) {
    for (const bool whole : {false, true}) {
      TERRACE_ASSIGN(const auto served,
                     engine->announce({.tokens = sizes.context,
                                       .piece_tokens = whole ? sizes.context : sizes.prefill_chunk,
                                       .seed = round}));
      TERRACE_ASSIGN(const Duration wall, take_prompt(*engine, *served));
      TERRACE_ASSIGN(const ClusteringReport report, served->sequence->clustering());
      TERRACE_TRY(check_prompt(*engine, *served));
      (whole ? figures.one_piece : figures.pieces).push_back(seconds(wall) / work);
      if (!whole) figures.clustering.push_back(seconds(report.busy) / work);
    }
  }
  return figures;
}

}  // namespace terrace::bench
