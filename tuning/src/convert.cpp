#include "terrace/tuning/convert.hpp"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "terrace/tuning/layer_traffic.hpp"
#include "terrace/core/replace_file.hpp"

namespace terrace::tuning {
namespace {

constexpr std::size_t mooncake_block_tokens = 512;

void take_units(const LayerTraffic& traffic, std::vector<SelectedUnit>& units) {
  units.clear();
  for (const offload::WantedUnit& each : traffic.wanted) {
    units.push_back({.unit = each.unit, .rows = each.rows_wanted});
  }
}

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

/// Reads a request's blocks, ascending and each once. nlohmann-json throws; nothing leaves here.
bool read_request(const std::string& line, BlockNumbers& numbers, TraceRecord& record) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("hash_ids") || !json["hash_ids"].is_array()) return false;
  std::map<UnitKey, std::uint32_t> rows;
  for (const auto& hash : json["hash_ids"]) {
    if (!hash.is_number_integer()) return false;
    rows[numbers.of(hash.get<std::uint64_t>())] = mooncake_block_tokens;
  }
  record.units.clear();
  for (const auto& [unit, count] : rows) {
    record.units.push_back({.unit = unit, .rows = count, .size_rows = count});
  }
  // As if all blocks that ever came lay in one sequence.
  record.position = numbers.size() * mooncake_block_tokens;
  return true;
}

}  // namespace

Status convert_to_blocks(const std::filesystem::path& source, const std::filesystem::path& target,
                         std::size_t block_tokens) {
  TERRACE_ASSIGN(TraceReader reader, TraceReader::open(source));
  TERRACE_ASSIGN(TrafficCutter cutter, TrafficCutter::create(reader.head(), block_tokens));
  TraceHead head = reader.head();
  head.unit = TraceUnit::block;
  head.block_tokens = block_tokens;
  TERRACE_ASSIGN(TraceWriter writer, TraceWriter::create(target, head));
  for (TraceRecord record;;) {
    TERRACE_ASSIGN(const bool more, reader.next(record));
    if (!more) break;
    if (record.kind == TraceRecord::Kind::selection) {
      take_units(cutter.cut(record), record.units);
      record.positions.clear();
      record.head_counts.clear();
      if (block_tokens != reader.head().block_tokens) {
        // These named blocks of another size.
        record.dropped.clear();
        record.unplaced.clear();
      }
    }
    writer.append(record);
  }
  return writer.finish(reader.end().run);
}

Status convert_to_csv(const std::filesystem::path& source, const std::filesystem::path& target,
                      std::size_t block_tokens) {
  TERRACE_ASSIGN(TraceReader reader, TraceReader::open(source));
  TERRACE_ASSIGN(TrafficCutter cutter, TrafficCutter::create(reader.head(), block_tokens));
  const std::filesystem::path temporary = temporary_name(target.string());
  std::ofstream stream(temporary);
  stream << "sequence,layer,step,unit,rows,slots\n";
  std::map<std::pair<std::uint64_t, std::size_t>, std::size_t> steps;
  const auto give_up = [&](const Error& error) {
    stream.close();
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    return tl::unexpected(error);
  };
  for (TraceRecord record;;) {
    const Result<bool> more = reader.next(record);
    if (!more) return give_up(more.error());
    if (!*more) break;
    if (record.kind != TraceRecord::Kind::selection) continue;
    const std::size_t step = steps[{record.sequence, record.layer}]++;
    for (const offload::WantedUnit& each : cutter.cut(record).wanted) {
      stream << fmt::format("{},{},{},{},{},{}\n", record.sequence, record.layer, step, each.unit,
                            each.rows_wanted, each.slots);
    }
  }
  stream.close();
  std::error_code renamed;
  if (stream) std::filesystem::rename(temporary, target, renamed);
  if (stream && !renamed) return {};
  return give_up(make_error(Errc::io_error, "{}: cannot be written", target.string()));
}

Status import_mooncake(const std::filesystem::path& source, const std::filesystem::path& target) {
  std::ifstream stream(source);
  if (!stream) return fail(Errc::io_error, "{}: cannot be read", source.string());
  // A prefix cache has no layers or heads: a row stands for a token. A request computes or fetches
  // the whole of a block that is not there, so keeping it moves nothing more.
  const TraceHead head{.unit = TraceUnit::cluster,
                       .source = "mooncake",
                       .shape = {.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 64},
                       .block_tokens = mooncake_block_tokens,
                       .slot_rows = mooncake_block_tokens};
  TERRACE_ASSIGN(TraceWriter writer, TraceWriter::create(target, head));
  BlockNumbers numbers;
  TraceRecord record;
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.empty()) continue;
    if (!read_request(line, numbers, record)) {
      return fail(Errc::corrupt, "{}:{}: not a request with hash_ids", source.string(), number);
    }
    record.kind = TraceRecord::Kind::selection;
    writer.append(record);
    record.kind = TraceRecord::Kind::step_end;
    writer.append(record);
  }
  if (writer.totals().layer_steps == 0) {
    return fail(Errc::corrupt, "{}: holds no request", source.string());
  }
  return writer.finish(std::nullopt);
}

}  // namespace terrace::tuning
