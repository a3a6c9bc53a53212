#include "serving/headline_run.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace terrace::bench {
namespace {

constexpr std::size_t headline_warm_up_steps = 3;  ///< of each batch
constexpr std::size_t checked_heads = 4;
constexpr std::size_t steps_between_words = 16;

void add(LinkBytes& sum, const LinkBytes& bytes) {
  sum.offload += bytes.offload;
  sum.demand += bytes.demand;
  sum.refill += bytes.refill;
  sum.streamed += bytes.streamed;
  sum.index += bytes.index;
}

void add(CacheCounters& sum, const CacheCounters& cache) {
  sum.rows_hit += cache.rows_hit;
  sum.rows_missed += cache.rows_missed;
  sum.rows_resident += cache.rows_resident;
}

void add(StepCpu& sum, const StepCpu& cpu) {
  sum.begin += cpu.begin;
  sum.attend += cpu.attend;
  sum.end += cpu.end;
}

/// Admits sequences once, and times batches of the first ones.
class HeadlineRun {
 public:
  HeadlineRun(ServingEngine& engine, const HeadlineSizes& sizes, const Say& say)
      : engine_(engine), sizes_(sizes), say_(say) {}

  Result<HeadlineFigures> run() {
    TERRACE_TRY(admit());
    TERRACE_TRY(pass_the_window());
    engine_.runtime().release_step_memory();  // of the prompts
    engine_.runtime().backend().reset_peak();
    for (const std::size_t sequences : sizes_.batches) {
      TERRACE_ASSIGN(figures_.points.emplace_back(), time_batch(sequences));
    }
    TERRACE_TRY(count_device_bytes());
    return std::move(figures_);
  }

 private:
  void say(std::string words) const {
    say_(fmt::format("{}, layers {}{}", words, layers(), sizes_.streamed ? ", streamed" : ""));
  }

  [[nodiscard]] std::size_t layers() const noexcept {
    return engine_.runtime().options().shape.layers;
  }

  [[nodiscard]] bool builds_indexes() const noexcept {
    const RetrievalTraits& traits = engine_.runtime().traits();
    return traits.selects && !traits.keeps_everything;
  }

  /// Where rows are streamed, tokens that are decoded count as more of the prompt.
  [[nodiscard]] std::size_t prompt_tokens() const noexcept {
    if (!sizes_.streamed) return sizes_.context;
    return sizes_.context + sizes_.batches.size() * (sizes_.steps + headline_warm_up_steps);
  }

  Status admit() {
    figures_.admitted = std::ranges::max(sizes_.batches);
    for (std::size_t i = 0; i < figures_.admitted; ++i) {
      say(fmt::format("store prompt {} of {}", i + 1, figures_.admitted));
      TERRACE_ASSIGN(
          admitted_.emplace_back(),
          engine_.announce(
              {.tokens = prompt_tokens(), .piece_tokens = sizes_.prefill_chunk, .seed = i + 1}));
      ServedSequence& served = *admitted_.back();
      TERRACE_TRY(engine_.store_until(served, sizes_.context));
      served.prompt.piece_tokens = 1;
    }
    for (std::size_t i = 0; i < figures_.admitted && builds_indexes(); ++i) {
      say(fmt::format("build index {} of {}", i + 1, figures_.admitted));
      TERRACE_TRY(admitted_[i]->sequence->await_indexes());
    }
    return {};
  }

  [[nodiscard]] std::vector<ServedMember> first(std::size_t sequences) const {
    std::vector<ServedMember> members;
    members.reserve(sequences);
    for (std::size_t i = 0; i < sequences; ++i) members.push_back(admitted_[i]->next());
    return members;
  }

  Status pass_the_window() {
    if (!builds_indexes()) return {};
    const Sequence& last = *admitted_.back()->sequence;
    while (last.window().begin <= sizes_.context) {
      if (figures_.steps_until_window_passed++ % steps_between_words == 0) {
        say(fmt::format("pass the window: {} tokens to go",
                        sizes_.context + 1 - last.window().begin));
      }
      TERRACE_TRY(engine_.step(first(figures_.admitted)));
    }
    return {};
  }

  Result<HeadlinePoint> time_batch(std::size_t sequences) {
    say(fmt::format("time a batch of {}", sequences));
    HeadlinePoint point{.sequences = sequences, .layers = layers()};
    for (std::size_t i = 0; i < headline_warm_up_steps; ++i) {
      TERRACE_TRY(engine_.step(first(sequences)));
    }
    for (std::size_t i = 0; i < sequences; ++i) admitted_[i]->sequence->reset_counters();
    for (std::size_t i = 0; i < sizes_.steps; ++i) {
      TERRACE_ASSIGN(const StepTimes times, engine_.step(first(sequences)));
      point.step.push_back(seconds(times.wall));
      add(point.cpu, times.cpu);
    }
    for (std::size_t i = 0; i < sequences; ++i) {
      const SequenceCounters counters = admitted_[i]->sequence->counters();
      add(point.bytes, counters.bytes);
      add(point.cache, counters.cache);
      for (std::size_t j = 0; j < wait_reasons; ++j) point.waits[j] += counters.waits[j];
    }
    say(fmt::format("check a batch of {}", sequences));
    TERRACE_TRY(engine_.check_outputs(sequences / 2, checked_heads));
    return point;
  }

  Status count_device_bytes() {
    Runtime& runtime = engine_.runtime();
    const std::size_t most = runtime.backend().memory(Tier::device).peak;
    figures_.device_bytes = most - std::min(most, engine_.tensor_bytes());
    TERRACE_ASSIGN(const MemoryNeed need,
                   runtime.memory_need({.tokens = admitted_.front()->sequence->length(),
                                        .cache_sharers = figures_.admitted}));
    figures_.predicted_sequence = need.device_own();
    figures_.predicted_shared = need.device_shared;
    return {};
  }

  ServingEngine& engine_;
  const HeadlineSizes& sizes_;
  const Say& say_;
  std::vector<std::unique_ptr<ServedSequence>> admitted_;
  HeadlineFigures figures_;
};

}  // namespace

double HeadlinePoint::step_seconds(double quantile) const {
  std::vector<double> sorted = step;
  std::ranges::sort(sorted);
  return sorted[static_cast<std::size_t>(
      std::lround(quantile * static_cast<double>(sorted.size() - 1)))];
}

Result<HeadlineFigures> time_headline_steps(const ServingOptions& options,
                                            const HeadlineSizes& sizes, const Say& say) {
  TERRACE_ASSIGN(const auto engine, ServingEngine::create(options));
  return HeadlineRun(*engine, sizes, say).run();
}

}  // namespace terrace::bench
