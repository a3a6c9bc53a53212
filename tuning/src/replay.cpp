#include "terrace/tuning/replay.hpp"

#include <algorithm>
#include <numeric>

#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::tuning {

Result<CacheReplay> CacheReplay::create(const TraceHead& head, ReplaySetup setup) {
  if (setup.block_tokens == 0) setup.block_tokens = head.block_tokens;
  TERRACE_TRY(check_cache(setup.cache));
  CacheReplay replay(head, std::move(setup));
  if (!replay.setup_.cache.none()) {
    // Names and numbers are checked now, so that no step can fail.
    CacheOptions options = replay.setup_.cache;
    const RecordedFuture::Wants nothing;
    const LayerFuture future(nothing);
    if (replay.setup_.future != nullptr) options.replacement.foresight = &future;
    TERRACE_TRY(make_resident_cache(options, 1, 1));
  }
  return replay;
}

std::size_t CacheReplay::slot_tokens() const noexcept { return head_.slot_tokens(setup_.unit()); }

std::size_t CacheReplay::slots(std::size_t sharers) const noexcept {
  if (setup_.cache.none()) return 0;
  return cache_slots(
      setup_.cache,
      {.slot_tokens = slot_tokens(), .selected_tokens = head_.selected_tokens, .sharers = sharers});
}

CacheReplay::Sequence& CacheReplay::sequence(std::uint64_t number) {
  const auto [found, opened] = sequences_.try_emplace(number);
  if (opened) {
    found->second.slots = slots();
    found->second.layers.resize(head_.recorded_layers());
    if (setup_.costs) found->second.clock.emplace_back(*setup_.costs, head_.shape.layers);
  }
  return found->second;
}

void CacheReplay::apply(const TraceRecord& record, const LayerTraffic& traffic) {
  Sequence& its = sequence(record.sequence);
  switch (record.kind) {
    case TraceRecord::Kind::share:
      return share(its, record.sharers);
    case TraceRecord::Kind::prompt:
      return prompt(its, record);
    case TraceRecord::Kind::selection:
      return select(its, record, traffic);
    case TraceRecord::Kind::pause:
      return pause(its);
    case TraceRecord::Kind::load:
      return load(its.layers[record.layer], record, traffic);
    case TraceRecord::Kind::close:
      return close(record.sequence);
    case TraceRecord::Kind::step_end:
      ++outcome_.steps;
      outcome_.bytes.offload += record.offload_bytes;
      outcome_.bytes.index += record.index_bytes;
      if (!its.clock.empty()) {
        its.clock.front().end_step({.index = record.index_bytes - record.ids_bytes,
                                    .to_host = record.offload_bytes + record.ids_bytes});
      }
  }
}

void CacheReplay::share(Sequence& its, std::size_t sharers) {
  if (setup_.cache.none()) return;
  // First the size that the last sharing gave, even if no step was taken with it: policies remember
  // less in a smaller cache.
  for (Layer& layer : its.layers) {
    if (layer.cache) resize(layer, its.slots);
  }
  its.sharers = sharers;
  its.slots = slots(sharers);
  for (Layer& layer : its.layers) {
    if (layer.rows) layer.rows->resize(its.slots);
  }
}

void CacheReplay::resize(Layer& layer, std::size_t slots) {
  if (layer.cache->capacity_slots() == slots) return;
  evicted_.clear();
  layer.cache->resize(slots, evicted_);
  outcome_.cache.evicted += evicted_.size();
}

void CacheReplay::prompt(Sequence& its, const TraceRecord& record) {
  its.layers[record.layer].prompts.push_back({.tokens = record.prompt,
                                              .window_begin = record.window_begin,
                                              .placed_begin = record.placed_begin,
                                              .slots = its.slots});
}

void CacheReplay::pause(Sequence& its) {
  for (Layer& layer : its.layers) {
    layer.rows.reset();
    if (!layer.cache) continue;
    withdraw_arrivals(layer);
    layer.cache->drop_from(0);
  }
}

void CacheReplay::withdraw_arrivals(Layer& layer) {
  for (const UnitKey unit : layer.arriving) layer.cache->drop(unit);
  layer.arriving.clear();
}

void CacheReplay::load(Layer& layer, const TraceRecord& record, const LayerTraffic& traffic) {
  outcome_.bytes.refill += record.loaded_bytes;
  layer.passed = traffic.window_begin;
  layer.prompts.clear();
  if (layer.rows) layer.rows->forget();
  if (!layer.cache) return;
  // In the order of the run: what a policy remembers of units depends on that.
  withdraw_arrivals(layer);
  if (keeps_clusters()) return layer.cache->drop_from(0);
  layer.cache->drop_from(static_cast<UnitKey>(record.position / setup_.block_tokens));
  layer.cache->drop_from(static_cast<UnitKey>(traffic.window_begin));
}

void CacheReplay::close(std::uint64_t number) {
  for (const StepClock& clock : sequence(number).clock) outcome_.seconds += clock.seconds();
  sequences_.erase(number);
}

void CacheReplay::prepare(Sequence& its, Layer& layer, const TraceRecord& record,
                          const LayerTraffic& traffic) {
  const std::size_t keys = std::max<std::size_t>(1, traffic.keys);
  if (!layer.cache) {
    CacheOptions options = setup_.cache;
    if (setup_.future != nullptr) {
      layer.future =
          std::make_unique<LayerFuture>(setup_.future->of(record.sequence, record.layer));
      options.replacement.foresight = layer.future.get();
    }
    Result<policies::ResidentCache> made = make_resident_cache(options, its.slots, keys);
    TERRACE_ASSERT(made.has_value());
    layer.cache.emplace(std::move(*made));
  }
  resize(layer, its.slots);
  layer.cache->reserve_keys(keys);
  evicted_.clear();
  adopt_passed(layer, traffic);
  outcome_.cache.evicted += evicted_.size();
  if (traffic.renamed) layer.cache->forget_all();
}

bool CacheReplay::lay_in_device_memory(const Layer& layer, std::size_t block) const {
  const std::size_t size = setup_.block_tokens;
  const auto its = std::find_if(
      layer.prompts.rbegin(), layer.prompts.rend(),
      [&](const Prompt& prompt) { return block >= divide_up(prompt.tokens.begin, size); });
  // A block that no prompt brought was in the window, and so was a block that decoding brought
  // after a prompt.
  if (its == layer.prompts.rend() || block >= divide_up(its->tokens.end, size)) return true;
  return block >= its->placed_begin / size || block + its->slots >= its->window_begin / size;
}

void CacheReplay::adopt_passed(Layer& layer, const LayerTraffic& traffic) {
  if (keeps_clusters() || head_.placement != Placement::offload) return;
  const std::size_t end = traffic.window_begin;
  for (std::size_t block = std::max(layer.passed, traffic.middle_begin); block < end; ++block) {
    if (!lay_in_device_memory(layer, block) || layer.cache->resident(static_cast<UnitKey>(block))) {
      continue;
    }
    if (layer.cache->adopt(static_cast<UnitKey>(block), 1, evicted_)) ++outcome_.cache.adopted;
  }
  layer.passed = std::max(layer.passed, end);
  layer.prompts.clear();
}

std::uint64_t CacheReplay::step(Layer& layer, const LayerTraffic& traffic) {
  policies::ResidentCache& cache = *layer.cache;
  if (layer.future != nullptr) layer.future->advance();
  const auto refused = [&] {
    return cache.counters().refused_units + cache.counters().no_room_units;
  };
  const std::uint64_t refused_before = refused();
  cache.plan_step(traffic.wanted, plan_);
  layer.arriving.clear();
  outcome_.cache.refused += refused() - refused_before;
  outcome_.cache.evicted += plan_.evicted.size();
  std::uint64_t refilled = 0;
  for (const std::uint32_t admitted : plan_.admitted) {
    const policies::WantedUnit& unit = traffic.wanted[admitted];
    ++outcome_.cache.admitted;
    if (!keeps_clusters()) layer.arriving.push_back(unit.unit);
    refilled += unit.refill_rows;
  }
  return refilled;
}

double CacheReplay::upkeep_seconds(const LayerTraffic& traffic) const {
  std::uint64_t rows = traffic.resident_rows;
  for (const policies::WantedUnit& unit : traffic.wanted) rows += unit.rows_wanted;
  return setup_.costs->upkeep.of(setup_.cache).seconds(1, rows, traffic.wanted.size());
}

void CacheReplay::select_rows(const Sequence& its, Layer& layer, const TraceRecord& record,
                              const LayerTraffic& traffic) {
  if (!layer.rows) layer.rows.emplace(head_.shape.kv_heads, setup_.block_tokens);
  layer.rows->resize(its.slots);
  const RowReplay::Step step = layer.rows->step(traffic.wanted, record.position + 1);
  CacheCounters& counted = outcome_.cache;
  counted.rows_hit += step.counts.found;
  counted.rows_missed += step.missed;
  counted.blocks_hit += step.counts.found;
  counted.blocks_missed += step.missed;
  counted.admitted += step.counts.admitted;
  counted.evicted += step.counts.evicted;
  counted.refused += step.missed - step.counts.admitted;
  outcome_.slot_steps += layer.rows->slots();
}

void CacheReplay::select_units(Sequence& its, Layer& layer, const TraceRecord& record,
                               const LayerTraffic& traffic) {
  if (setup_.cache.none()) {
    plan_.hit.assign(traffic.wanted.size(), 0);
  } else {
    prepare(its, layer, record, traffic);
    outcome_.bytes.refill += step(layer, traffic) * head_.shape.row_bytes();
    outcome_.slot_steps += layer.cache->capacity_slots();
  }
  // Blocks of a prompt are numbered in the order in which they first came: ascending is in order.
  bool reached = true;
  for (std::size_t i = 0; i < traffic.wanted.size(); ++i) {
    const bool hit = plan_.hit[i] != 0 && reached;
    reached = hit || !head_.prefixes;
    (hit ? outcome_.cache.rows_hit : outcome_.cache.rows_missed) += traffic.wanted[i].rows_wanted;
    ++(hit ? outcome_.cache.blocks_hit : outcome_.cache.blocks_missed);
  }
}

void CacheReplay::select(Sequence& its, const TraceRecord& record, const LayerTraffic& traffic) {
  Layer& layer = its.layers[record.layer];
  const std::uint64_t missed_before = outcome_.cache.rows_missed;
  const std::uint64_t refilled_before = outcome_.bytes.refill;
  outcome_.cache.rows_resident += traffic.resident_rows;
  if (keeps_rows()) {
    select_rows(its, layer, record, traffic);
  } else {
    select_units(its, layer, record, traffic);
  }
  const std::uint64_t demand =
      (outcome_.cache.rows_missed - missed_before) * head_.shape.row_bytes();
  const std::uint64_t refill = outcome_.bytes.refill - refilled_before;
  outcome_.bytes.demand += demand;
  if (its.clock.empty()) return;
  const double upkeep = upkeep_seconds(traffic);
  for (std::size_t alike = 0; alike < head_.layers_per_record(); ++alike) {
    its.clock.front().layer(record.layer + alike, demand, refill, upkeep);
  }
}

ReplayOutcome CacheReplay::outcome() const {
  ReplayOutcome outcome = outcome_;
  CacheCounters& counted = outcome.cache;
  for (std::uint64_t* const of_one_layer :
       {&counted.rows_hit, &counted.rows_missed, &counted.rows_resident, &counted.blocks_hit,
        &counted.blocks_missed, &counted.admitted, &counted.adopted, &counted.evicted,
        &counted.refused, &outcome.bytes.demand, &outcome.bytes.refill, &outcome.slot_steps}) {
    *of_one_layer *= head_.layers_per_record();
  }
  // Sequences compute one after the other.
  for (const auto& [number, its] : sequences_) {
    if (!its.clock.empty()) outcome.seconds += its.clock.front().seconds();
  }
  return outcome;
}

}  // namespace terrace::tuning
