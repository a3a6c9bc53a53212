#include "serving/headline_rows.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "harness/samples.hpp"
#include "terrace/core/version.hpp"

namespace terrace::bench {
namespace {

std::vector<double> scaled(std::vector<double> samples, double factor) {
  for (double& sample : samples) sample *= factor;
  return samples;
}

double count(std::size_t number) noexcept { return static_cast<double>(number); }

const char* place_of_rows(const HeadlineCost& cost) noexcept {
  return cost.streamed ? "streamed" : "in place";
}

/// Seconds of a sequence and step, by reason.
Json waits_of(const HeadlinePoint& point) {
  Json waits = Json::object();
  for (std::size_t i = 0; i < wait_reasons; ++i) {
    waits[std::string(to_string(static_cast<WaitReason>(i)))] =
        seconds(point.waits[i]) / count(point.sequences * point.step.size());
  }
  return waits;
}

Status put_headline_step(Row& row, const HeadlineCost& cost) {
  const double share = 1 / count(cost.many.sequences * cost.many.layers);
  put_samples(row, scaled(cost.many.step, share));
  row.parameters["p95"] = share * cost.many.step_seconds(0.95);
  const double of_few = 1 / count(cost.few.sequences * cost.few.layers);
  row.parameters["few_layers"] = {{"layers", cost.few.layers},
                                  {"p50", of_few * cost.few.step_seconds()},
                                  {"p95", of_few * cost.few.step_seconds(0.95)}};
  row.parameters["rows"] = place_of_rows(cost);
  row.parameters["wait_seconds"] = waits_of(cost.many);
  return {};
}

Status put_marginal(Row& row, const HeadlineCost& cost) {
  row.value = cost.marginal();
  row.samples = cost.many.step.size();
  row.parameters["rows"] = place_of_rows(cost);
  return {};
}

Status put_fixed(Row& row, const HeadlineCost& cost) {
  row.value = cost.fixed();
  row.samples = cost.many.step.size();
  row.parameters["rows"] = place_of_rows(cost);
  return {};
}

Status put_hit_rate(Row& row, const HeadlineCost& cost) {
  const CacheCounters& cache = cost.many.cache;
  if (cache.rows_hit + cache.rows_missed == 0) {
    return fail(Errc::unsupported, "no step looked a row up in a cache");
  }
  row.value =
      static_cast<double>(cache.rows_hit) / static_cast<double>(cache.rows_hit + cache.rows_missed);
  row.samples = cost.many.step.size();
  row.parameters["rows_hit"] = cache.rows_hit;
  row.parameters["rows_missed"] = cache.rows_missed;
  row.parameters["rows_resident"] = cache.rows_resident;
  return {};
}

Status put_link_bytes(Row& row, const HeadlineCost& cost) {
  const HeadlinePoint& point = cost.many;
  const double tokens = count(point.sequences * point.step.size() * point.layers);
  double sum = 0;
  for (const auto& [name, bytes] : {std::pair{"offload", point.bytes.offload},
                                    {"demand", point.bytes.demand},
                                    {"refill", point.bytes.refill},
                                    {"streamed", point.bytes.streamed},
                                    {"index", point.bytes.index}}) {
    row.parameters[name] = static_cast<double>(bytes) / tokens;
    sum += static_cast<double>(bytes) / tokens;
  }
  row.value = sum;
  row.samples = point.step.size();
  return {};
}

Status put_cpu(Row& row, const HeadlineCost& cost) {
  const HeadlinePoint& point = cost.many;
  const double layers = count(point.step.size() * point.layers);
  const double attend = seconds(point.cpu.attend) / layers;
  const double end = seconds(point.cpu.end) / layers;
  row.value = attend + end;
  row.samples = point.step.size();
  row.parameters["attend"] = attend;
  row.parameters["end"] = end;
  row.parameters["begin"] = seconds(point.cpu.begin) / layers;
  return {};
}

constexpr std::array rows_of_a_point{
    PointRow{"step", "s", Better::lower, &put_headline_step},
    PointRow{"step_fixed", "s", Better::lower, &put_fixed},
    PointRow{"step_marginal", "s", Better::lower, &put_marginal},
    PointRow{"cpu", "s", Better::lower, &put_cpu},
    PointRow{"hit_rate", "share", Better::higher, &put_hit_rate},
    PointRow{"link_bytes", "B", Better::lower, &put_link_bytes},
};

}  // namespace

std::span<const PointRow> point_rows() noexcept { return rows_of_a_point; }

Status put_fits(Row& row, const HeadlinePolicy& policy) {
  row.value = count(policy.fits);
  row.samples = 1;
  row.parameters["fits_host"] = policy.fits_host ? Json(*policy.fits_host) : Json();
  row.parameters["device_bytes_sequence"] = policy.device_bytes_sequence;
  row.parameters["device_bytes_shared"] = policy.device_bytes_shared;
  return {};
}

Status put_headline_device_bytes(Row& row, const HeadlineCosts& costs) {
  if (!costs.device) return fail(Errc::unsupported, "rows of all batches were streamed");
  const HeadlineFigures& figures = *costs.device;
  row.value = count(figures.device_bytes) / count(figures.admitted);
  row.samples = 1;
  row.parameters["predicted"] = figures.predicted_sequence;
  row.parameters["predicted_shared"] = figures.predicted_shared;
  row.parameters["sequences"] = figures.admitted;
  row.parameters["steps_until_window_passed"] = figures.steps_until_window_passed;
  return {};
}

Status put_tokens_per_second(Row& row, const HeadlineSettings& settings,
                             const HeadlinePolicy& policy, const HeadlineCosts& costs) {
  const HeadlineCost* cost = nullptr;
  if (policy.fits == 0 && !policy.keeps_everything) {
    return fail(Errc::unsupported, "not one sequence fits in --model-device-memory");
  }
  for (const HeadlineCost& point : costs.points) {
    const bool counts = policy.fits == 0 || (point.few.sequences <= policy.fits && !point.streamed);
    if (counts && (cost == nullptr || point.few.sequences > cost->few.sequences)) cost = &point;
  }
  if (cost == nullptr) return fail(Errc::unsupported, "no batch that fits was measured");
  const double batch = count(cost->few.sequences);
  const double sequences = policy.fits == 0 ? batch : count(policy.fits);
  const double step = sequences / batch * cost->model_step(settings.model_layers);
  row.parameters["fits"] = policy.fits;
  row.parameters["batch"] = cost->few.sequences;
  row.parameters["fixed_seconds"] = cost->fixed();
  row.parameters["marginal_seconds"] = cost->marginal();
  row.parameters["rows"] = place_of_rows(*cost);
  if (step <= 0) {
    return fail(Errc::unsupported, "a layer's cost is below zero: steps vary by more than it");
  }
  row.value = sequences / step;
  row.samples = cost->many.step.size();
  return {};
}

void put_first_token(Row& row, const HeadlineSettings& settings, const HeadlinePolicy& policy,
                     const FirstTokenFigures& figures) {
  const std::size_t layers = policy.policy.options.runtime.shape.layers;
  const double scale = count(settings.model_layers) / count(layers);
  put_samples(row, scaled(figures.indexed, scale));
  row.parameters["layers"] = layers;
  row.parameters["prompt_seconds"] = scale * median(figures.prompt);
  row.parameters["index_wait_seconds"] = scale * median(figures.index_wait);
  if (!policy.policy.builds_index) return;
  row.peer = {"without waiting for the index", std::string(version()),
              scale * median(figures.exact)};
}

}  // namespace terrace::bench
