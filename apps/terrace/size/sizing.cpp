#include "size/sizing.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "terrace/offload/host_backend.hpp"
#include "terrace/policies/budget.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::apps {
namespace {

/// More sequences than anybody counts.
constexpr std::size_t counted_max = std::size_t{1} << 20;

std::optional<std::size_t> limit_of(const Config& config, const char* key) {
  const std::size_t bytes = config.size_bytes(key);
  if (bytes == std::numeric_limits<std::size_t>::max()) return std::nullopt;
  return bytes;
}

/// Returns what a tier holds for so many sequences.
using BytesOf = FunctionRef<Result<std::size_t>(std::size_t sequences)>;

/// Returns how many sequences fit under a limit: what they take grows with their number.
Result<std::size_t> count_fitting(std::size_t limit, BytesOf bytes_of) {
  std::size_t fitting = 0;
  for (std::size_t step = counted_max; step > 0; step /= 2) {
    TERRACE_ASSIGN(const std::size_t bytes, bytes_of(fitting + step));
    if (bytes <= limit) fitting += step;
  }
  return fitting;
}

Result<TierSize> size_tier(std::optional<std::size_t> limit, std::size_t sequences,
                           BytesOf bytes_of) {
  TierSize size{.limit = limit};
  TERRACE_ASSIGN(size.needed, bytes_of(sequences));
  if (!limit) return size;
  TERRACE_ASSIGN(size.fits, count_fitting(*limit, bytes_of));
  return size;
}

/// Sizes host memory and the file below it, where rows go that find no room (HostTier).
Status size_below_the_device(const Config& config, std::size_t sequences,
                             FunctionRef<Result<MemoryNeed>(std::size_t)> need_of, Sizing& sizing) {
  const std::optional<std::size_t> limit = limit_of(config, "host.memory");
  const bool has_file = limit && !config.text("tier.nvme.path").empty();
  // With a file below it, rows have at most three quarters of host memory, and are to have a
  // quarter where indexes take the rest.
  const std::size_t rows_most = has_file ? *limit / 4 * 3 : std::numeric_limits<std::size_t>::max();
  const std::size_t rows_least = has_file ? *limit / 4 : rows_most;
  const auto on_host = [&](std::size_t count) -> Result<std::size_t> {
    TERRACE_ASSIGN(const MemoryNeed need, need_of(count));
    const std::size_t others = count * (need.host() - need.host_rows);
    const std::size_t rows = std::min(count * need.host_rows, rows_most);
    const std::size_t room = has_file ? *limit - std::min(*limit, others) : rows;
    return others + std::min(rows, std::max(rows_least, room));
  };
  TERRACE_ASSIGN(sizing.host, size_tier(limit, sequences, on_host));
  if (!has_file) return {};
  const auto in_file = [&](std::size_t count) -> Result<std::size_t> {
    TERRACE_ASSIGN(const MemoryNeed need, need_of(count));
    TERRACE_ASSIGN(const std::size_t host, on_host(count));
    return count * need.host() - host;
  };
  TERRACE_ASSIGN(sizing.nvme, size_tier(config.size_bytes("tier.nvme.bytes"), sequences, in_file));
  return {};
}

}  // namespace

const TierSize& Sizing::of(Tier tier) const noexcept {
  if (tier == Tier::device) return device;
  return tier == Tier::host ? host : nvme;
}

std::vector<Tier> Sizing::binding() const {
  std::vector<Tier> fewest;
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    if (!of(tier).fits) continue;
    if (!fewest.empty() && *of(tier).fits > *of(fewest.front()).fits) continue;
    if (!fewest.empty() && *of(tier).fits < *of(fewest.front()).fits) fewest.clear();
    fewest.push_back(tier);
  }
  return fewest;
}

Result<Sizing> size_policy(const Config& config, const SizeQuery& query) {
  TERRACE_ASSIGN(RuntimeOptions options, RuntimeOptions::from(config, query.shape));
  // Sizes are the same without a store, and none is opened for them.
  options.below_host = {};
  options.prefixes = {};
  const std::optional<std::size_t> device = limit_of(config, "device.memory");
  TERRACE_ASSIGN(auto backend,
                 offload::HostBackend::create(
                     {.device_memory_limit = device.value_or(SIZE_MAX), .device_threads = 1}));
  options.host_threads = 1;
  TERRACE_ASSIGN(const auto runtime, Runtime::open(std::move(options), std::move(backend)));
  const auto need_of = [&](std::size_t sequences) {
    return runtime->memory_need(
        {.tokens = query.tokens, .step_tokens = query.step_tokens, .cache_sharers = sequences});
  };
  Sizing sizing{.policy = config.text("retrieval.policy")};
  TERRACE_ASSIGN(sizing.need, need_of(query.sequences));
  const auto on_device = [&](std::size_t sequences) -> Result<std::size_t> {
    TERRACE_ASSIGN(const MemoryNeed need, need_of(sequences));
    return sequences * need.device_own() + need.device_shared;
  };
  TERRACE_ASSIGN(sizing.device, size_tier(device, query.sequences, on_device));
  TERRACE_TRY(size_below_the_device(config, query.sequences, need_of, sizing));
  const RetrievalTraits& traits = runtime->traits();
  sizing.keeps_everything = traits.keeps_everything;
  if (!traits.selects) return sizing;
  const policies::BudgetSplit split =
      policies::split_budget(runtime->options().budget_terms(query.tokens), traits);
  const std::size_t layers = query.shape.layers - runtime->options().dense_layers;
  sizing.selected_tokens = split.selected;
  sizing.step_index_bytes = sizing.need.index_bytes;
  sizing.step_selected_bytes =
      layers * list_count(query.shape, traits.lists) * split.selected * query.shape.row_bytes();
  return sizing;
}

}  // namespace terrace::apps
