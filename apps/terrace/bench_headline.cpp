#include "bench_headline.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "config_check.hpp"
#include "size/sizing.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::apps {
namespace {

constexpr std::size_t model_layers_max = 1024;
constexpr std::size_t layers_measured = 4;
/// Admitted by default, at most: to build the indexes of so many takes a server a quarter of a
/// minute.
constexpr std::size_t admitted_tokens_max = std::size_t{1} << 21;
constexpr bench::ServingSizes quick_headline{
    .sequences = 3, .context = 600, .steps = 4, .prefill_chunk = 200};

/// Sizes policies at one length.
class HeadlineSizer {
 public:
  HeadlineSizer(const ServingBenchOptions& options, const Config& config, const KvShape& measured,
                const MeasuredBackend& backend)
      : options_(options), config_(config), measured_(measured), model_(measured) {
    if (backend.host_bytes != std::numeric_limits<std::size_t>::max()) {
      config_ = with_values(config_, {{"host.memory", std::to_string(backend.host_bytes)}});
    }
  }

  Status read_model(std::size_t layers) {
    model_.layers = layers;
    return config_.set("device.memory", options_.model_device_memory,
                       {ConfigOrigin::flag, "--model-device-memory"});
  }

  Result<bench::HeadlinePolicy> policy(const Config& config, const std::string& name,
                                       std::size_t tokens) const {
    bench::HeadlinePolicy policy;
    TERRACE_ASSIGN(policy.policy, serving_policy(config, {.shape = measured_,
                                                          .name = name,
                                                          .tokens = tokens + 4 * options_.steps,
                                                          .times = false}));
    TERRACE_ASSIGN(const Sizing model, size(name, model_, tokens));
    policy.keeps_everything = model.keeps_everything;
    policy.fits = model.device.fits.value_or(0);
    policy.fits_host = model.host.fits;
    policy.device_bytes_sequence = model.need.device_own();
    policy.device_bytes_shared = model.need.device_shared;
    TERRACE_ASSIGN(const Sizing here,
                   size(model.keeps_everything ? "streaming" : name, measured_, tokens));
    if (here.host.fits) policy.room = *here.host.fits;
    return policy;
  }

 private:
  [[nodiscard]] Result<Sizing> size(const std::string& name, const KvShape& shape,
                                    std::size_t tokens) const {
    return size_policy(with_policy(config_, name), {.shape = shape, .tokens = tokens});
  }

  const ServingBenchOptions& options_;
  Config config_;
  KvShape measured_;
  KvShape model_;
};

Result<std::vector<std::size_t>> contexts_of(const ServingBenchOptions& options,
                                             const MeasuredBackend& backend) {
  if (!options.contexts.empty()) return read_contexts(options.contexts);
  if (backend.device.empty()) return std::vector<std::size_t>{4096};
  return std::vector<std::size_t>{32'768, 131'072};
}

Result<std::vector<std::size_t>> batches_of(const ServingBenchOptions& options,
                                            std::size_t tokens) {
  if (!options.sequences.empty()) return read_sequences(options.sequences);
  std::vector<std::size_t> batches{1, 16, 64};
  std::erase_if(batches, [&](std::size_t batch) {
    return batch > 1 && batch * tokens > admitted_tokens_max;
  });
  return batches;
}

void make_at_most(std::vector<std::size_t>& counts, std::size_t most) {
  for (std::size_t& count : counts) count = std::min(count, most);
  std::ranges::sort(counts);
  const auto [first, last] = std::ranges::unique(counts);
  counts.erase(first, last);
}

Result<std::size_t> layers_of_model(const ServingBenchOptions& options, const Config& config) {
  if (options.model_layers != 0) {
    TERRACE_TRY(check_count("--model-layers", options.model_layers, model_layers_max));
    return options.model_layers;
  }
  TERRACE_ASSIGN(const KvShape shape, model_shape(options, config));
  return shape.layers;
}

}  // namespace

Config headline_config(Config config) {
  if (is_set(config, "retrieval.policy")) return config;
  return with_values(std::move(config), {{"retrieval.policy", "full,pqcache,signs"}});
}

Result<std::size_t> headline_layers(const ServingBenchOptions& options, const KvShape& model) {
  const std::size_t layers = options.layers.value_or(std::min(layers_measured, model.layers));
  if (layers >= 2 && layers <= model.layers) return layers;
  return fail(Errc::invalid_argument,
              "--layers {}: --headline compares one layer with 2 to {}, as many as the model has",
              layers, model.layers);
}

Result<bench::HeadlineSettings> headline_settings(const ServingBenchOptions& options,
                                                  const Config& config, const KvShape& measured,
                                                  const MeasuredBackend& backend) {
  bench::HeadlineSettings settings{.steps = options.steps,
                                   .prefill_chunk = options.prefill_chunk,
                                   .parameters = parameters_of(options, config, measured)};
  TERRACE_ASSIGN(settings.model_layers, layers_of_model(options, config));
  HeadlineSizer sizer(options, config, measured, backend);
  TERRACE_TRY(sizer.read_model(settings.model_layers));
  TERRACE_ASSIGN(settings.model_device_bytes, parse_size(options.model_device_memory));
  TERRACE_ASSIGN(std::vector<std::size_t> contexts, contexts_of(options, backend));
  if (options.quick) {
    settings.steps = std::min(settings.steps, quick_headline.steps);
    settings.prefill_chunk = std::min(settings.prefill_chunk, quick_headline.prefill_chunk);
    make_at_most(contexts, quick_headline.context);
  }
  TERRACE_ASSIGN(const std::vector<std::string> names, policy_names(config));
  for (const std::size_t tokens : contexts) {
    bench::HeadlineContext context{.tokens = tokens, .policies = {}, .batches = {}};
    TERRACE_ASSIGN(context.batches, batches_of(options, tokens));
    make_at_most(context.batches, options.quick ? quick_headline.sequences
                                                : std::numeric_limits<std::size_t>::max());
    for (const std::string& name : names) {
      TERRACE_ASSIGN(context.policies.emplace_back(), sizer.policy(config, name, tokens));
    }
    settings.contexts.push_back(std::move(context));
  }
  return settings;
}

}  // namespace terrace::apps
