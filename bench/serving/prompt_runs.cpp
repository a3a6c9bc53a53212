#include <memory>

#include "serving/runs.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t prompt_warm_up_steps = 3;
constexpr std::size_t prompt_rounds = 5;
constexpr std::size_t beside_rounds = 3;

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

/// Takes each step of a batch and a piece of one more sequence's prompt twice: as one step, and as
/// a step of the batch and one of the same piece of a twin.
class StepsBesideAPiece {
 public:
  StepsBesideAPiece(ServingEngine& engine, const ServingSizes& sizes)
      : engine_(engine), sizes_(sizes) {}

  Result<BesideFigures> run() {
    for (std::size_t i = 0; i < sizes_.sequences; ++i) {
      TERRACE_ASSIGN(batch_.emplace_back(), engine_.store(prompt_of(i)));
    }
    for (const auto& served : batch_) TERRACE_TRY(served->sequence->await_indexes());
    for (std::size_t i = 0; i < prompt_warm_up_steps; ++i) TERRACE_TRY(engine_.step(members()));
    for (std::size_t round = 0; round < beside_rounds; ++round) TERRACE_TRY(take_prompt(round));
    return std::move(figures_);
  }

 private:
  [[nodiscard]] MadeUpPrompt prompt_of(std::uint64_t seed) const noexcept {
    return {.tokens = sizes_.context, .piece_tokens = sizes_.prefill_chunk, .seed = seed};
  }

  [[nodiscard]] std::vector<ServedMember> members() const {
    std::vector<ServedMember> all;
    all.reserve(batch_.size() + 1);
    for (const auto& served : batch_) all.push_back(served->next());
    return all;
  }

  Status take_prompt(std::size_t round) {
    const MadeUpPrompt prompt = prompt_of(sizes_.sequences + round);
    TERRACE_ASSIGN(const auto arriving, engine_.announce(prompt));
    TERRACE_ASSIGN(const auto twin, engine_.announce(prompt));
    // The two ways take turns at being first.
    for (bool first = round % 2 == 0; arriving->prompt_tokens_left() > 0; first = !first) {
      if (first) TERRACE_TRY(step_beside(*arriving));
      TERRACE_TRY(step_apart(*twin));
      if (!first) TERRACE_TRY(step_beside(*arriving));
    }
    return {};
  }

  Status step_beside(ServedSequence& arriving) {
    std::vector<ServedMember> all = members();
    all.push_back(arriving.next());
    TERRACE_ASSIGN(const StepTimes times, engine_.step(all));
    figures_.beside.push_back(seconds(times.wall));
    if (arriving.prompt_tokens_left() > 0) return {};
    TERRACE_TRY(engine_.check_outputs(0));
    TERRACE_TRY(engine_.check_outputs(batch_.size()));
    // No step is timed while an index is built.
    return arriving.sequence->await_indexes();
  }

  Status step_apart(ServedSequence& twin) {
    TERRACE_ASSIGN(const StepTimes decoding, engine_.step(members()));
    TERRACE_ASSIGN(const StepTimes piece, engine_.step(twin.next()));
    figures_.step.push_back(seconds(decoding.wall));
    figures_.piece.push_back(seconds(piece.wall));
    return twin.prompt_tokens_left() > 0 ? Status{} : twin.sequence->await_indexes();
  }

  ServingEngine& engine_;
  ServingSizes sizes_;
  std::vector<std::unique_ptr<ServedSequence>> batch_;
  BesideFigures figures_;
};

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
      TERRACE_ASSIGN(const Duration wall, sizes.given_prompts
                                              ? engine->store_until(*served, sizes.context)
                                              : take_prompt(*engine, *served));
      TERRACE_ASSIGN(const ClusteringReport report, served->sequence->clustering());
      TERRACE_TRY(check_prompt(*engine, *served));
      (whole ? figures.one_piece : figures.pieces).push_back(seconds(wall) / work);
      if (!whole) figures.clustering.push_back(seconds(report.busy) / work);
    }
  }
  return figures;
}

Result<BesideFigures> step_beside_a_piece(const ServingOptions& options,
                                          const ServingSizes& sizes) {
  if (sizes.given_prompts) {
    return fail(Errc::unsupported,
                "prompts are given: their rows are stored in steps of their own, beside no batch");
  }
  TERRACE_ASSIGN(const auto engine, ServingEngine::create(options));
  return StepsBesideAPiece(*engine, sizes).run();
}

}  // namespace terrace::bench
