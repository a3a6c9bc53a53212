#include "serving/headline.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace terrace::bench {
namespace {

/// All rows of a batch cross the link in each layer of a step.
constexpr std::size_t streamed_steps_max = 8;

ServingOptions with_layers(ServingOptions options, std::size_t layers) {
  options.runtime.shape.layers = layers;
  return options;
}

/// Attends to all rows, but keeps only sinks and a window in device memory.
ServingOptions streamed(ServingOptions options) {
  options.runtime.policy = "streaming";
  options.runtime.cache.policy = "none";
  return options;
}

/// The runs of batches whose rows lie alike.
class HeadlinePair {
 public:
  HeadlinePair(const ServingOptions& options, HeadlineSizes sizes, Say say)
      : options_(options), sizes_(std::move(sizes)), say_(std::move(say)) {}

  Status measure(HeadlineCosts& costs) const {
    if (sizes_.batches.empty()) return {};
    TERRACE_ASSIGN(HeadlineFigures few,
                   time_headline_steps(with_layers(options_, 1), sizes_, say_));
    TERRACE_ASSIGN(HeadlineFigures many, time_headline_steps(options_, sizes_, say_));
    for (std::size_t i = 0; i < sizes_.batches.size(); ++i) {
      costs.points.push_back(
          {.few = std::move(few.points[i]), .many = many.points[i], .streamed = sizes_.streamed});
    }
    if (!sizes_.streamed) costs.device = std::move(many);
    return {};
  }

 private:
  ServingOptions options_;
  HeadlineSizes sizes_;
  Say say_;
};

}  // namespace

double HeadlineCost::marginal() const {
  return (many.step_seconds() - few.step_seconds()) / static_cast<double>(many.layers - few.layers);
}

const HeadlineCost* HeadlineCosts::of(std::size_t sequences) const noexcept {
  const auto at = std::ranges::find(points, sequences,
                                    [](const HeadlineCost& cost) { return cost.few.sequences; });
  return at == points.end() ? nullptr : &*at;
}

std::vector<std::size_t> headline_batches(const HeadlineContext& context,
                                          const HeadlinePolicy& policy) {
  std::vector<std::size_t> batches = context.batches;
  if (policy.fits > 0) batches.push_back(std::min(policy.fits, batches.back()));
  std::ranges::sort(batches);
  const auto [first, last] = std::ranges::unique(batches);
  batches.erase(first, last);
  return batches;
}

Result<HeadlineCosts> measure_headline(const HeadlineSettings& settings,
                                       const HeadlineContext& context,
                                       const HeadlinePolicy& policy) {
  HeadlineSizes resident{.context = context.tokens,
                         .batches = {},
                         .steps = settings.steps,
                         .prefill_chunk = settings.prefill_chunk};
  HeadlineSizes streaming = resident;
  streaming.streamed = true;
  streaming.steps = std::min(streaming.steps, streamed_steps_max);
  for (const std::size_t batch : headline_batches(context, policy)) {
    const bool streams = policy.keeps_everything && batch > policy.fits;
    // A batch that this machine has no room for is left out; its rows say so.
    if (batch > policy.room && (streams || !policy.keeps_everything)) continue;
    (streams ? streaming : resident).batches.push_back(batch);
  }
  const ServingOptions& options = policy.policy.options;
  const Say say = [&](const std::string& words) {
    settings.say(fmt::format("{} at {} tokens: {}", policy.policy.name, context.tokens, words));
  };
  HeadlineCosts costs;
  TERRACE_TRY(HeadlinePair(options, std::move(resident), say).measure(costs));
  TERRACE_TRY(HeadlinePair(streamed(options), std::move(streaming), say).measure(costs));
  return costs;
}

}  // namespace terrace::bench
