#include "search_space.hpp"

#include <algorithm>
#include <cstdlib>

#include "terrace/core/bytes.hpp"
#include "terrace/core/config.hpp"
#include "terrace/core/ops.hpp"
#include "terrace/runtime/cache_options.hpp"

namespace terrace::tuning {
namespace {

constexpr std::size_t setting_most = 512;  ///< next to it is "never", where a policy has that
// Beyond it hardly a unit may be evicted, and each miss looks at all of them to find that out.
constexpr double horizon_most = 512;

/// The slots that cache.tokens can say at the most.
std::size_t slots_max(const TraceHead& head, const CacheUnit& unit) {
  const auto tokens = static_cast<std::size_t>(find_config_key("cache.tokens")->high);
  return std::max<std::size_t>(1, tokens / head.slot_tokens(unit));
}

/// Returns the slots that one sequence can fill.
std::size_t useful_slots(const TraceHead& head, const TraceEnd& end, const TraceExtent& extent,
                         const CacheUnit& unit) {
  if (head.has_sizes(unit.granularity)) return std::max<std::size_t>(1, extent.cluster_slots);
  const std::size_t middle =
      end.last_position - std::min(end.last_position, head.sink_tokens + head.window_tokens);
  return std::max<std::size_t>(1, divide_up(middle, unit.block_tokens) + 1);
}

/// A policy's settings that are tried.
std::vector<policies::ReplacementOptions> variants_of(std::string_view policy) {
  const auto setting = policies::replacement_setting(policy);
  if (!setting) return {{}};
  std::vector<policies::ReplacementOptions> variants;
  for (const std::size_t value : setting->tried) {
    variants.emplace_back().*setting->value = value;
  }
  return variants;
}

/// A quarter less and a half more.
std::vector<std::size_t> values_beside(const policies::ReplacementSetting& setting,
                                       std::size_t value) {
  const std::size_t most = std::min(setting.high, setting_most);
  if (value == 0) return {most};
  std::vector<std::size_t> values;
  if (value > 1) values.push_back(value * 3 / 4);
  const std::size_t more = value + divide_up(value, 2);
  if (more <= most || setting.low == 0) values.push_back(more <= most ? more : 0);
  return values;
}

/// The policies that are named, in this order; `all` and no names stand for every one.
std::vector<std::string> each_policy_once(std::span<const std::string> named) {
  std::vector<std::string> names;
  const auto add = [&names](std::string_view name) {
    if (std::ranges::count(names, name) == 0) names.emplace_back(name);
  };
  const auto add_all = [&add] {
    for (const auto& entry : policies::replacement_policies()) add(entry.name);
  };
  for (const std::string& name : named) name == "all" ? add_all() : add(name);
  if (named.empty()) add_all();
  return names;
}

/// Numbers of the rows of so many positions, by which a layer finds those that are cached without
/// their blocks.
std::size_t table_bytes(const TraceHead& head, std::size_t positions) {
  return positions * head.shape.kv_heads * sizeof(std::uint32_t);
}

/// Returns how many of the model's layers attend everything, and have all of it in device memory.
std::size_t dense_layers(const TraceHead& head) {
  const std::string dense(head.setting("retrieval.dense_layers"));
  return std::min<std::size_t>(head.shape.layers, std::strtoull(dense.c_str(), nullptr, 10));
}

}  // namespace

std::vector<CacheUnit> cache_units(const TraceHead& head) {
  if (head.unit != TraceUnit::token) return {head.recorded()};
  std::vector<std::size_t> sizes{smallest_block_tokens, 16, 32, 64, 128};
  if (std::ranges::count(sizes, head.block_tokens) == 0) sizes.push_back(head.block_tokens);
  std::vector<CacheUnit> units;
  units.reserve(sizes.size() + 2);
  for (const std::size_t size : sizes) units.push_back({.block_tokens = size});
  if (head.has_clusters()) units.push_back({CacheGranularity::cluster, head.block_tokens});
  units.push_back({CacheGranularity::row, head.block_tokens});
  return units;
}

Result<std::vector<CacheOptions>> cache_choices(std::span<const std::string> policies) {
  std::vector<CacheOptions> choices;
  std::vector<CacheOptions> offline;
  for (const std::string& name : each_policy_once(policies)) {
    if (policies::needs_foresight(name)) {
      offline.push_back({.policy = name, .admission = "always"});
      continue;
    }
    TERRACE_TRY(policies::make_replacement_policy(name).map_error(
        [](const Error& error) { return error.while_doing("--policies"); }));
    for (const policies::ReplacementOptions& variant : variants_of(name)) {
      choices.push_back({.policy = name, .admission = "always", .replacement = variant});
      for (const double horizon : {2.0, 8.0, 32.0, 128.0}) {
        choices.push_back({.policy = name,
                           .admission = "refill",
                           .replacement = variant,
                           .refill = {.horizon_steps = horizon}});
      }
    }
  }
  if (choices.empty()) {
    return fail(Errc::invalid_argument,
                "--policies leaves nothing to search: name one that does not need the future");
  }
  choices.insert(choices.end(), offline.begin(), offline.end());
  return choices;
}

bool can_cache(const CacheOptions& cache, const CacheUnit& unit) {
  // The device replaces rows by itself, and admits all that it fetches.
  return unit.granularity != CacheGranularity::row ||
         (cache.policy == "lru" && cache.admission == "always");
}

std::vector<CacheOptions> settings_beside(const CacheOptions& cache) {
  std::vector<CacheOptions> beside;
  const auto add = [&](auto change) {
    CacheOptions& its = beside.emplace_back(cache);
    change(its);
  };
  if (cache.admission == "refill") {
    const double least = find_config_key("cache.horizon")->low;
    for (const double factor : {0.5, 2.0}) {
      const double horizon = factor * cache.refill.horizon_steps;
      if (horizon < least || horizon > horizon_most) continue;
      add([&](CacheOptions& its) { its.refill.horizon_steps = horizon; });
    }
  }
  if (const auto setting = policies::replacement_setting(cache.policy)) {
    for (const std::size_t value : values_beside(*setting, cache.replacement.*setting->value)) {
      add([&](CacheOptions& its) { its.replacement.*setting->value = value; });
    }
  }
  return beside;
}

std::size_t measured_bytes(const TraceHead& head, const TraceEnd& end,
                           CacheGranularity granularity) {
  if (!end.run) return 0;
  const bool had_clusters = head.cache.granularity == CacheGranularity::cluster;
  const bool had_tables = head.cache.granularity != CacheGranularity::block && !head.cache.none();
  const bool has_clusters = granularity == CacheGranularity::cluster;
  const bool has_tables = granularity != CacheGranularity::block;
  const std::size_t layers = head.shape.layers;
  const std::size_t positions = end.last_position + 1;
  std::size_t bytes = end.run->fixed_device_bytes;
  // Layers share their staging, but where clusters are made of what is in it.
  const std::size_t staging = (layers - 1) * head.staged_rows * head.shape.row_bytes();
  if (had_clusters && !has_clusters) bytes -= std::min(bytes, staging);
  if (has_clusters && !had_clusters) bytes += staging;
  // Tables that are gone count with the least that they had. Tables that come count with the most
  // that they may have: with the room that they keep for growth, and one of them growing beside its
  // old memory.
  const std::size_t selecting = layers - dense_layers(head);
  if (had_tables && !has_tables) bytes -= std::min(bytes, selecting * table_bytes(head, positions));
  if (has_tables && !had_tables) {
    bytes += (selecting + 1) * table_bytes(head, positions * 5 / 4 + 256);
  }
  return bytes;
}

MemoryPlan plan_memory(const TraceHead& head, const TraceEnd& end, const TraceExtent& extent,
                       const CacheUnit& unit) {
  MemoryPlan plan;
  const std::size_t layers = head.shape.layers;
  const std::size_t dense = dense_layers(head);
  const std::size_t selecting = std::max<std::size_t>(1, layers - dense);
  const std::size_t block_tokens = unit.block_tokens;
  const std::size_t block_bytes = block_tokens * head.shape.token_bytes();  // of one layer
  const std::size_t blocks = divide_up(end.last_position + 1, block_tokens);
  plan.fixed_bytes = measured_bytes(head, end, unit.granularity);
  if (end.run) {
    // All of a prompt may come in one step.
    plan.step = {.shape = head.shape,
                 .block_tokens = block_tokens,
                 .tokens = end.last_position + 1,
                 .rows = blocks * block_tokens};
  }
  // The window may begin and end anywhere in its first and last block.
  const std::size_t needed =
      divide_up(head.sink_tokens, block_tokens) +
      (head.window_tokens > 0 ? divide_up(head.window_tokens, block_tokens) : 0) + 1;
  const std::size_t taken = extent.sharers * (needed * (layers - dense) + blocks * dense);
  plan.fixed_bytes += taken * block_bytes;
  // Prompts take blocks by the slab, before their index; what they leave is a cache's.
  const std::size_t spare = divide_up(taken, slab_blocks) * slab_blocks - taken;
  plan.slots_useful =
      std::min(extent.sharers * useful_slots(head, end, extent, unit), slots_max(head, unit));
  // Pointers to blocks, with the room that tables keep for growth: many where blocks are small.
  constexpr std::size_t pointer_bytes = 16;
  plan.fixed_bytes += extent.sharers * layers * blocks * pointer_bytes;
  if (head.has_sizes(unit.granularity)) {
    plan.slot_bytes = selecting * head.slot_rows * head.shape.row_bytes();
    // Slots are cut from blocks, the last of them in part.
    plan.fixed_bytes += selecting * block_bytes;
  } else {
    plan.slot_bytes = selecting * block_bytes;
  }
  if (unit.granularity == CacheGranularity::row) {
    const std::size_t slots = block_tokens * head.shape.kv_heads * sizeof(RowSlot);
    plan.slot_bytes += selecting * (slots + slots / 4);
  }
  plan.least_bytes = plan.fixed_bytes + spare * block_bytes;
  return plan;
}

std::size_t MemoryPlan::step_bytes(std::size_t device_memory) const noexcept {
  if (step.tokens == 0) return 0;
  StepRoomQuery query = step;
  query.device_memory = device_memory;
  return step_room(query).bytes(step.shape);
}

std::size_t MemoryPlan::least_memory() const noexcept {
  const std::size_t beside = std::max(least_bytes, fixed_bytes + slot_bytes);
  // More memory lets a step take more, by an eighth of it at most.
  std::size_t memory = beside;
  while (memory < beside + step_bytes(memory)) memory = beside + step_bytes(memory);
  return memory;
}

bool MemoryPlan::fits(std::size_t device_memory) const noexcept {
  return device_memory >= least_bytes + step_bytes(device_memory);
}

std::size_t MemoryPlan::slots(std::size_t device_memory) const noexcept {
  if (!fits(device_memory)) return 0;
  const std::size_t rest = device_memory - fixed_bytes - step_bytes(device_memory);
  return std::min(rest / slot_bytes, slots_useful);
}

}  // namespace terrace::tuning
