#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>

#include "serving/runs.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t warm_up_steps = 3;
/// The first of them finds the processor's caches full of the batch's rows; the median does not.
constexpr std::size_t alone_steps = 4;       ///< for each step of the batch
constexpr std::size_t steps_until_turn = 4;  ///< of the batch, before each decodes by itself once
constexpr std::size_t departures_wanted = 3;

/// A batch being served, and a sequence beside it.
class Service {
 public:
  Service(ServingEngine& engine, const ServingSizes& sizes) : engine_(engine), sizes_(sizes) {}

  Result<ServingFigures> run() {
    TERRACE_TRY(admit_all());
    for (std::size_t i = 0; i < warm_up_steps; ++i) {
      TERRACE_TRY(engine_.step(members()));
      TERRACE_TRY(engine_.step(alone_->next()));
    }
    Backend& backend = engine_.runtime().backend();
    figures_.prompt_device_bytes = backend.memory(Tier::device).peak;
    backend.reset_peak();
    for (std::size_t i = 0; i < sizes_.steps; ++i) {
      TERRACE_TRY(step_batch(i));
      TERRACE_TRY(step_alone());
      if (i % steps_until_turn == 0) TERRACE_TRY(step_one_by_one());
      TERRACE_TRY(let_one_leave(i));
    }
    figures_.device_bytes = backend.memory(Tier::device).peak;
    return std::move(figures_);
  }

 private:
  [[nodiscard]] std::vector<ServedMember> members() const {
    std::vector<ServedMember> all;
    all.reserve(batch_.size());
    for (const auto& served : batch_) all.push_back(served->next());
    return all;
  }

  /// Lengths lie evenly around the context.
  [[nodiscard]] std::size_t length_of(std::size_t place) const noexcept {
    return sizes_.context * (6 * sizes_.sequences + 4 * place + 2) / (8 * sizes_.sequences);
  }

  /// The sequence beside the batch decodes more often than the others, and must not be longer in
  /// the mean.
  [[nodiscard]] std::size_t length_alone() const noexcept {
    const std::size_t growth = sizes_.steps * alone_steps;
    const std::size_t growth_of_batch = sizes_.steps + sizes_.steps / steps_until_turn;
    return sizes_.context - std::min(sizes_.context / 2, (growth - growth_of_batch) / 2);
  }

  MadeUpPrompt prompt_of(std::size_t tokens) {
    return {.tokens = tokens, .piece_tokens = sizes_.prefill_chunk, .seed = ++admitted_};
  }

  Status admit_all() {
    for (std::size_t i = 0; i < sizes_.sequences; ++i) {
      TERRACE_ASSIGN(batch_.emplace_back(), engine_.store(prompt_of(length_of(i))));
    }
    TERRACE_ASSIGN(alone_, engine_.store(prompt_of(length_alone())));
    for (const auto& served : batch_) TERRACE_TRY(served->sequence->await_indexes());
    return alone_->sequence->await_indexes();
  }

  [[nodiscard]] double share_of(Duration wall, std::size_t sequences) const noexcept {
    return seconds(wall) /
           static_cast<double>(sequences * engine_.runtime().options().shape.layers);
  }

  [[nodiscard]] bool is_checked(std::size_t step) const noexcept {
    return step == 0 || step == sizes_.steps / 2 || step + 1 == sizes_.steps;
  }

  Status step_batch(std::size_t step) {
    TERRACE_ASSIGN(const StepTimes times, engine_.step(members()));
    figures_.step.push_back(share_of(times.wall, batch_.size()));
    figures_.outside.push_back(1 - seconds(times.busy) / seconds(times.wall));
    TERRACE_ASSIGN(const std::size_t threads, process_threads());
    figures_.threads = std::max(figures_.threads, threads);
    if (!is_checked(step)) return {};
    for (const std::size_t place : {std::size_t{0}, batch_.size() / 2, batch_.size() - 1}) {
      TERRACE_TRY(engine_.check_outputs(place));
    }
    return {};
  }

  Status step_alone() {
    for (std::size_t i = 0; i < alone_steps; ++i) {
      TERRACE_ASSIGN(const StepTimes times, engine_.step(alone_->next()));
      figures_.alone.push_back(share_of(times.wall, 1));
    }
    return {};
  }

  Status step_one_by_one() {
    for (const auto& served : batch_) {
      TERRACE_ASSIGN(const StepTimes times, engine_.step(served->next()));
      figures_.one_by_one.push_back(share_of(times.wall, 1));
    }
    return {};
  }

  /// Another one takes the place of one that leaves, at times evenly spread over the run.
  Status let_one_leave(std::size_t step) {
    const std::size_t every = std::max<std::size_t>(sizes_.steps / (departures_wanted + 1), 1);
    if (batch_.size() == 1 || (step + 1) % every != 0) return {};
    const std::size_t place = figures_.arrivals++ % batch_.size();
    batch_[place].reset();
    TERRACE_ASSIGN(batch_[place], engine_.announce(prompt_of(length_of(place))));
    return take_prompt_of(place);
  }

  /// The others decode meanwhile. These steps are longer, and are not timed.
  Status take_prompt_of(std::size_t place) {
    ServedSequence& arriving = *batch_[place];
    if (sizes_.given_prompts) {
      TERRACE_TRY(engine_.store_until(arriving, arriving.prompt.tokens));
      return arriving.sequence->await_indexes();
    }
    while (arriving.prompt_tokens_left() > 0) TERRACE_TRY(engine_.step(members()));
    TERRACE_TRY(engine_.check_outputs(place));
    TERRACE_TRY(engine_.check_outputs((place + 1) % batch_.size()));
    return arriving.sequence->await_indexes();
  }

  ServingEngine& engine_;
  ServingSizes sizes_;
  std::uint64_t admitted_ = 0;
  std::vector<std::unique_ptr<ServedSequence>> batch_;
  std::unique_ptr<ServedSequence> alone_;
  ServingFigures figures_;
};

}  // namespace

Result<ServingFigures> serve(const ServingOptions& options, const ServingSizes& sizes) {
  TERRACE_ASSIGN(const auto engine, ServingEngine::create(options));
  return Service(*engine, sizes).run();
}

Result<std::size_t> process_threads() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::size_t threads = 0;
    if (word == "Threads:" && status >> threads) return threads;
  }
  return fail(Errc::unsupported, "/proc/self/status does not say how many threads there are");
}

}  // namespace terrace::bench
