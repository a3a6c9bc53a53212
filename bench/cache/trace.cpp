#include "cache/trace.hpp"

#include <algorithm>

#include "terrace/core/rng.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::bench {
namespace {

/// Selections of 100 of 1,024 blocks that drift: a quarter of them is drawn anew at each step.
Trace made_up_trace(bool quick) {
  constexpr std::size_t blocks = 1024;
  constexpr std::size_t wanted = 100;
  Trace trace{.name = "made up",
              .head = {.unit = tuning::TraceUnit::block,
                       .shape = {.layers = 2, .query_heads = 32, .kv_heads = 8, .head_dim = 128},
                       .block_tokens = 32,
                       .selected_tokens = 1024}};
  Rng rng(1);
  std::vector<std::vector<UnitKey>> layers(trace.head.shape.layers);
  for (std::size_t step = 0; step < (quick ? 50U : 1000U); ++step) {
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      auto& units = layers[layer];
      std::erase_if(units, [&](UnitKey) { return rng.below(4) == 0; });
      while (units.size() < wanted) {
        const double place = rng.uniform();
        const auto unit = static_cast<UnitKey>(
            (step / 8 + static_cast<std::size_t>(place * place * place * (blocks - 1))) % blocks);
        if (std::ranges::count(units, unit) == 0) units.push_back(unit);
      }
      std::ranges::sort(units);
      tuning::TraceRecord record{.layer = layer};
      for (const UnitKey unit : units) {
        record.units.push_back(
            {.unit = unit, .rows = static_cast<std::uint32_t>(1 + rng.below(80))});
      }
      trace.units += units.size();
      trace.slots += units.size();  // a block takes one
      trace.records.push_back(std::move(record));
    }
  }
  return trace;
}

Result<Trace> read_trace(const std::string& file, std::uint64_t most) {
  TERRACE_ASSIGN(tuning::TraceReader reader, tuning::TraceReader::open(file));
  Trace trace{.name = file, .head = reader.head()};
  // Policies that choose among units are compared: rows have one policy.
  CacheGranularity& unit = trace.head.cache.granularity;
  if (unit == CacheGranularity::row) unit = CacheGranularity::block;
  TERRACE_ASSIGN(tuning::TrafficCutter cutter,
                 tuning::TrafficCutter::create(trace.head, trace.head.recorded()));
  for (tuning::TraceRecord record;;) {
    TERRACE_ASSIGN(const bool more, reader.next(record));
    if (!more) break;
    // Steps are read whole.
    trace.truncated =
        trace.units >= most && trace.records.back().kind == tuning::TraceRecord::Kind::step_end;
    if (trace.truncated) break;
    for (const policies::WantedUnit& wanted : cutter.cut(record).wanted) {
      ++trace.units;
      trace.slots += wanted.slots;
    }
    trace.records.push_back(record);
  }
  return trace;
}

}  // namespace

std::size_t Trace::capacity_tokens(std::size_t times) const {
  const auto selections = static_cast<std::uint64_t>(std::ranges::count(
      records, tuning::TraceRecord::Kind::selection, &tuning::TraceRecord::kind));
  const std::uint64_t wanted = times * slots / std::max<std::uint64_t>(1, selections);
  return std::max<std::size_t>(1, wanted) * head.slot_tokens(head.recorded());
}

std::size_t Trace::selected_capacity_tokens(std::size_t times) const {
  const std::size_t slot_tokens = head.slot_tokens(head.recorded());
  return std::max<std::size_t>(1, times * head.selected_tokens / slot_tokens) * slot_tokens;
}

Result<std::shared_ptr<const Trace>> load_trace(const std::string& file, bool quick,
                                                std::uint64_t most) {
  if (file.empty()) return std::make_shared<const Trace>(made_up_trace(quick));
  return read_trace(file, most).map([](Trace&& trace) {
    return std::make_shared<const Trace>(std::move(trace));
  });
}

}  // namespace terrace::bench
