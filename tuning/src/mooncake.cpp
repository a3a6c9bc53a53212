#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "imported_requests.hpp"
#include "line_reader.hpp"
#include "mooncake_request.hpp"
#include "terrace/tuning/import.hpp"

namespace terrace::tuning {
namespace {

/// Says that a request has not as many ids as its prompt has blocks, if so, and what would fit.
std::string check_blocks(const MooncakeRequest& request, std::size_t block_tokens,
                         const BlockSizes& sizes) {
  const std::uint64_t needed = (request.input_length - 1) / block_tokens + 1;
  if (needed == request.hash_ids.size()) return {};
  const std::optional<std::size_t> fitting = sizes.fitting();
  return fmt::format("input_length {} has {} blocks of {} tokens, and hash_ids {}; {}",
                     request.input_length, needed, block_tokens, request.hash_ids.size(),
                     fitting
                         ? fmt::format("--block-tokens {} would fit all lines up to here", *fitting)
                         : "no size of blocks fits all lines up to here");
}

/// Turns a request into a record of its blocks, ascending and each once.
void record_blocks(const MooncakeRequest& request, const TraceHead& head,
                   UnitNumbers<std::uint64_t>& numbers, TraceRecord& record) {
  std::map<UnitKey, std::size_t> tokens;
  std::uint64_t left = request.input_length;
  for (const std::uint64_t id : request.hash_ids) {
    const auto its = static_cast<std::size_t>(std::min<std::uint64_t>(left, head.block_tokens));
    std::size_t& most = tokens[numbers.of(id)];
    most = std::max(most, its);
    left -= its;
  }
  record.units.clear();
  for (const auto& [unit, count] : tokens) {
    const auto rows = static_cast<std::uint32_t>(count * head.shape.kv_heads);
    record.units.push_back({.unit = unit, .rows = rows, .size_rows = rows});
  }
  // As if all blocks that ever came lay in one sequence.
  record.position = numbers.size() * head.block_tokens;
  record.arrival_ms = request.timestamp;
}

}  // namespace

Status import_mooncake(const Conversion& files, const MooncakeOptions& options) {
  TERRACE_ASSIGN(InputFile file, InputFile::open_named(files.source));
  const std::string name = file.name();
  LineReader lines(std::move(file));
  const TraceHead head = prefixes_head("mooncake", options.block_tokens, options.model);
  TERRACE_ASSIGN(TraceWriter writer, TraceWriter::create(files.target, head));
  UnitNumbers<std::uint64_t> numbers;
  MooncakeRequest request;
  BlockSizes sizes;
  for (TraceRecord record;;) {
    TERRACE_ASSIGN(const auto line, lines.next());
    if (!line) break;
    if (const auto share = lines.share(); share && files.progress) files.progress(*share);
    if (const std::string flaw = request.read(*line); !flaw.empty()) return lines.wrong(flaw);
    sizes.take(request);
    const std::string flaw = check_blocks(request, options.block_tokens, sizes);
    if (!flaw.empty()) return lines.wrong(flaw);
    record_blocks(request, head, numbers, record);
    if (const std::string many = numbers.flaw(); !many.empty()) return lines.wrong(many);
    append_request(writer, record);
  }
  if (writer.totals().layer_steps == 0) return fail(Errc::corrupt, "{}: holds no request", name);
  return writer.finish(std::nullopt);
}

}  // namespace terrace::tuning
