#include "terrace/tuning/convert.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "search_space.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/tuning/costs.hpp"
#include "terrace/tuning/layer_traffic.hpp"
#include "terrace/tuning/replay.hpp"

namespace terrace::tuning {
namespace {

void take_units(const LayerTraffic& traffic, std::vector<SelectedUnit>& units) {
  units.clear();
  for (const policies::WantedUnit& each : traffic.wanted) {
    units.push_back({.unit = each.unit, .rows = each.rows_wanted});
  }
}

/// Gives the units of a layer numbers that mean the same throughout: other simulators know of no
/// renaming.
class LastingNumbers {
 public:
  /// To be called once a step.
  void begin_step(const LayerTraffic& traffic) {
    if (traffic.renamed) first_ = end_;
    ++step_;
  }
  [[nodiscard]] std::size_t step() const noexcept { return step_ - 1; }

  std::uint64_t of(UnitKey unit) {
    end_ = std::max(end_, first_ + unit + 1);
    return first_ + unit;
  }

 private:
  std::size_t step_ = 0;
  std::uint64_t first_ = 0;  ///< number of unit 0 since the last renaming
  std::uint64_t end_ = 0;
};

/// Returns the figures that a run would have recorded if its cache had kept blocks. No run measured
/// that, so the counters are those of a replay, and the time is changed by the difference in upkeep
/// of the cache.
RecordedRun run_with_blocks(const TraceReader& source, const TraceHead& blocks,
                            const ReplayOutcome& outcome) {
  RecordedRun run = *source.end().run;
  const double usual = usual_seconds(source.head().cache, run.cache, source.end());
  // A run whose device kept rows by itself says nothing of the host's speed.
  const bool of_rows = source.head().cache.granularity == CacheGranularity::row;
  const double measured = usual > 0 ? run.upkeep_seconds / usual : 0;
  const double speed = of_rows ? 1 : measured;
  const double upkeep = speed * usual_seconds(blocks.cache, outcome.cache, source.end());
  run.decode_seconds += upkeep - run.upkeep_seconds;
  run.upkeep_seconds = upkeep;
  run.fixed_device_bytes = measured_bytes(source.head(), source.end(), CacheGranularity::block);
  run.cache = outcome.cache;
  run.bytes.demand = outcome.bytes.demand;
  run.bytes.refill = outcome.bytes.refill;
  return run;
}

void tell(const Conversion& files, double share) {
  if (files.progress) files.progress(share);
}

}  // namespace

Status convert_to_blocks(const Conversion& files, std::size_t block_tokens) {
  TERRACE_ASSIGN(TraceReader reader, TraceReader::open(files.source));
  if (reader.head().unit != TraceUnit::token) {
    return fail(Errc::invalid_argument,
                "{}: a trace of {}s has no tokens to make blocks of; --to csv takes it",
                files.source.string(), to_string(reader.head().unit));
  }
  const CacheUnit blocks{.block_tokens = block_tokens};
  TERRACE_ASSIGN(TrafficCutter cutter, TrafficCutter::create(reader.head(), blocks));
  TraceHead head = reader.head();
  head.unit = TraceUnit::block;
  head.block_tokens = block_tokens;
  head.slot_rows = 0;
  head.cache.granularity = CacheGranularity::block;
  // The counters of a run that cached other units are made anew.
  std::optional<CacheReplay> replay;
  if (blocks != reader.head().recorded()) {
    TERRACE_ASSIGN(replay, CacheReplay::create(
                               reader.head(), {.cache = head.cache, .block_tokens = block_tokens}));
  }
  TERRACE_ASSIGN(TraceWriter writer, TraceWriter::create(files.target, head));
  TERRACE_TRY(reader.for_each([&](TraceRecord& record) {
    tell(files, reader.progress());
    const LayerTraffic& traffic = cutter.cut(record);
    if (replay) replay->apply(record, traffic);
    if (record.kind == TraceRecord::Kind::selection) {
      take_units(traffic, record.units);
      record.positions.clear();
      record.head_counts.clear();
      record.renamed = false;
    }
    writer.append(record);
  }));
  writer.add_losses(reader.end().losses);
  if (!replay || !reader.end().run) return writer.finish(reader.end().run);
  return writer.finish(run_with_blocks(reader, head, replay->outcome()));
}

Status convert_to_csv(const Conversion& files, const CacheUnit& unit) {
  TERRACE_ASSIGN(TraceReader reader, TraceReader::open(files.source));
  TERRACE_ASSIGN(TrafficCutter cutter, TrafficCutter::create(reader.head(), unit));
  TERRACE_ASSIGN(PendingFile pending, PendingFile::create(files.target.string()));
  pending.append("key,sequence,layer,step,unit,rows,slots\n");
  ByLayer<LastingNumbers> layers;
  TERRACE_TRY(reader.for_each([&](const TraceRecord& record) {
    tell(files, reader.progress());
    if (record.kind == TraceRecord::Kind::close) erase_sequence(layers, record.sequence);
    if (record.kind != TraceRecord::Kind::selection) return;
    const LayerTraffic& traffic = cutter.cut(record);
    LastingNumbers& numbers = layers[{record.sequence, record.layer}];
    numbers.begin_step(traffic);
    for (std::size_t alike = 0; alike < reader.head().layers_per_record(); ++alike) {
      for (const policies::WantedUnit& each : traffic.wanted) {
        pending.append(fmt::format("s{0}.l{1}.u{3},{0},{1},{2},{3},{4},{5}\n", record.sequence,
                                   record.layer + alike, numbers.step(), numbers.of(each.unit),
                                   each.rows_wanted, each.slots));
      }
    }
  }));
  return pending.publish();
}

}  // namespace terrace::tuning
