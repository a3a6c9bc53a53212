#include "terrace/tuning/convert.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "search_space.hpp"
#include "terrace/core/file_errors.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/tuning/costs.hpp"
#include "terrace/tuning/layer_traffic.hpp"
#include "terrace/tuning/replay.hpp"

namespace terrace::tuning {
namespace {

constexpr std::size_t mooncake_block_tokens = 512;

void take_units(const LayerTraffic& traffic, std::vector<SelectedUnit>& units) {
  units.clear();
  for (const offload::WantedUnit& each : traffic.wanted) {
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

/// Gives the blocks of requests dense numbers, in the order in which they first come.
class BlockNumbers {
 public:
  UnitKey of(std::uint64_t hash) {
    return numbers_.try_emplace(hash, static_cast<UnitKey>(numbers_.size())).first->second;
  }
  [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }

 private:
  std::unordered_map<std::uint64_t, UnitKey> numbers_;
};

/// What is wrong with a line, and what to do; empty where nothing is.
std::string check_request(const nlohmann::json& request) {
  if (!request.is_object()) return "no JSON object; give one request a line";
  for (const char* const field : {"input_length", "hash_ids"}) {
    if (!request.contains(field)) return fmt::format("no field {}; give one", field);
  }
  const auto& length = request["input_length"];
  if (!length.is_number_unsigned() || length == 0) return "input_length is no number above zero";
  const auto& ids = request["hash_ids"];
  if (!ids.is_array() || ids.empty()) return "hash_ids is no list of at least one id";
  const bool numbers =
      std::ranges::all_of(ids, [](const auto& id) { return id.is_number_unsigned(); });
  return numbers ? "" : "an id in hash_ids is no number of zero or more";
}

/// Returns the tokens of a request's block: the last one may be begun only.
std::uint32_t tokens_of_block(std::size_t index, std::size_t blocks, std::uint64_t input_length) {
  const std::uint64_t before = (blocks - 1) * mooncake_block_tokens;
  const bool begun =
      index + 1 == blocks && input_length > before && input_length < before + mooncake_block_tokens;
  return static_cast<std::uint32_t>(begun ? input_length - before : mooncake_block_tokens);
}

/// Reads a request's blocks, ascending and each once.
void read_request(const nlohmann::json& request, std::size_t kv_heads, BlockNumbers& numbers,
                  TraceRecord& record) {
  const auto length = request["input_length"].get<std::uint64_t>();
  const auto& ids = request["hash_ids"];
  std::map<UnitKey, std::uint32_t> tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto& its = tokens[numbers.of(ids[i].get<std::uint64_t>())];
    its = std::max(its, tokens_of_block(i, ids.size(), length));
  }
  record.units.clear();
  for (const auto& [unit, count] : tokens) {
    const auto rows = static_cast<std::uint32_t>(count * kv_heads);
    record.units.push_back({.unit = unit, .rows = rows, .size_rows = rows});
  }
  // As if all blocks that ever came lay in one sequence.
  record.position = numbers.size() * mooncake_block_tokens;
}

/// A request computes or fetches the whole of a block that is not there, so keeping it moves
/// nothing more.
TraceHead mooncake_head(const std::optional<ImportedModel>& model) {
  TraceHead head{.unit = TraceUnit::cluster,
                 .source = "mooncake",
                 .shape = {.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 64},
                 .block_tokens = mooncake_block_tokens};
  if (model) {
    head.model = model->name;
    head.model_fingerprint = model->fingerprint;
    head.weight_bytes = model->weight_bytes;
    head.shape = model->shape;
  }
  head.slot_rows = mooncake_block_tokens * head.shape.kv_heads;
  return head;
}

void append_request(TraceWriter& writer, std::size_t layers, TraceRecord& record) {
  record.kind = TraceRecord::Kind::selection;
  for (record.layer = 0; record.layer < layers; ++record.layer) writer.append(record);
  record.kind = TraceRecord::Kind::step_end;
  writer.append(record);
}

/// What a run recorded, had its cache kept blocks: nobody measured that, so its counters are those
/// of a replay, and its time is less what the units it did keep took to look after.
RecordedRun run_with_blocks(const TraceReader& source, const TraceHead& blocks,
                            const ReplayOutcome& outcome) {
  RecordedRun run = *source.end().run;
  const double usual = usual_seconds(source.head().cache, run.cache, source.end());
  const double speed = usual > 0 ? run.upkeep_seconds / usual : 0;
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
  // What the run cached in other units is counted anew.
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
  pending.append("sequence,layer,step,unit,rows,slots\n");
  ByLayer<LastingNumbers> layers;
  TERRACE_TRY(reader.for_each([&](const TraceRecord& record) {
    tell(files, reader.progress());
    if (record.kind == TraceRecord::Kind::close) erase_sequence(layers, record.sequence);
    if (record.kind != TraceRecord::Kind::selection) return;
    const LayerTraffic& traffic = cutter.cut(record);
    LastingNumbers& numbers = layers[{record.sequence, record.layer}];
    numbers.begin_step(traffic);
    for (const offload::WantedUnit& each : traffic.wanted) {
      pending.append(fmt::format("{},{},{},{},{},{}\n", record.sequence, record.layer,
                                 numbers.step(), numbers.of(each.unit), each.rows_wanted,
                                 each.slots));
    }
  }));
  return pending.publish();
}

Status import_mooncake(const Conversion& files, const std::optional<ImportedModel>& model) {
  const std::string source = files.source.string();
  errno = 0;
  std::ifstream stream(source);
  if (!stream) return cannot_read(source, errno);
  const TraceHead head = mooncake_head(model);
  TERRACE_ASSIGN(TraceWriter writer, TraceWriter::create(files.target, head));
  BlockNumbers numbers;
  TraceRecord record;
  std::size_t number = 0;
  std::error_code unknown;  // of a pipe, say
  const auto bytes = std::filesystem::file_size(files.source, unknown);
  std::uintmax_t read_bytes = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    read_bytes += line.size() + 1;
    // The last line may end without a newline.
    if (!unknown)
      tell(files, std::min(1.0, static_cast<double>(read_bytes) / static_cast<double>(bytes)));
    if (line.empty()) continue;
    const auto request = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (const std::string wrong = check_request(request); !wrong.empty()) {
      return fail(Errc::corrupt, "{}:{}: {}", source, number, wrong);
    }
    read_request(request, head.shape.kv_heads, numbers, record);
    append_request(writer, head.shape.layers, record);
  }
  if (stream.bad()) {
    return fail(Errc::io_error, "{}: cannot be read beyond line {}", source, number);
  }
  if (writer.totals().layer_steps == 0) {
    return fail(Errc::corrupt, "{}: holds no request", source);
  }
  return writer.finish(std::nullopt);
}

}  // namespace terrace::tuning
