#include <atomic>
#include <memory>
#include <thread>

#include "serving/runs.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t indexing_warm_up_steps = 3;
constexpr std::size_t rounds = 4;

/// Steps one sequence until another one's index is there.
class StepsWhileIndexing {
 public:
  StepsWhileIndexing(ServingEngine& engine, const ServingSizes& sizes)
      : engine_(engine), sizes_(sizes) {}

  Result<IndexingFigures> run() {
    TERRACE_ASSIGN(stepping_, store(0));
    for (std::size_t i = 0; i < indexing_warm_up_steps; ++i) {
      TERRACE_TRY(engine_.step(stepping_->next()));
    }
    for (std::size_t round = 1; round <= rounds; ++round) {
      for (std::size_t i = 0; i < sizes_.steps; ++i) TERRACE_TRY(step(figures_.without));
      TERRACE_TRY(step_beside_another(round));
    }
    TERRACE_TRY(engine_.check_outputs(0));
    if (figures_.during.empty()) {
      return fail(Errc::unsupported, "indexes were there before a step beside them had ended");
    }
    return std::move(figures_);
  }

 private:
  Result<std::unique_ptr<ServedSequence>> store(std::uint64_t seed) {
    return engine_.store(
        {.tokens = sizes_.context, .piece_tokens = sizes_.prefill_chunk, .seed = seed});
  }

  Status step(std::vector<double>& samples) {
    TERRACE_ASSIGN(const StepTimes times, engine_.step(stepping_->next()));
    samples.push_back(seconds(times.wall));
    return {};
  }

  Status step_beside_another(std::uint64_t seed) {
    TERRACE_ASSIGN(const auto other, store(seed));
    std::atomic<bool> indexed = false;
    Status awaited;
    std::thread waiting([&] {
      awaited = other->sequence->await_indexes();
      indexed = true;
    });
    const Status stepped = step_until(indexed);
    waiting.join();
    TERRACE_TRY(awaited);
    return stepped;
  }

  Status step_until(const std::atomic<bool>& indexed) {
    for (std::size_t i = 0; i < sizes_.steps; ++i) {
      std::vector<double> sample;
      TERRACE_TRY(step(sample));
      if (indexed) return {};  // part of that step had the machine to itself
      figures_.during.push_back(sample.front());
    }
    return {};
  }

  ServingEngine& engine_;
  ServingSizes sizes_;
  std::unique_ptr<ServedSequence> stepping_;
  IndexingFigures figures_;
};

}  // namespace

Result<IndexingFigures> step_while_indexing(const ServingOptions& options,
                                            const ServingSizes& sizes) {
  TERRACE_ASSIGN(const auto engine, ServingEngine::create(options));
  return StepsWhileIndexing(*engine, sizes).run();
}

}  // namespace terrace::bench
