#include <fmt/core.h>

#include <memory>

#include "fuzz/fuzz_folder.hpp"
#include "fuzz/json_reference.hpp"
#include "fuzz/readers.hpp"
#include "fuzz/trace_chunks.hpp"
#include "mooncake_request.hpp"
#include "terrace/tuning/import.hpp"
#include "terrace/tuning/trace_file.hpp"
#include "tuning/trace_bytes.hpp"

namespace terrace {
namespace {

using namespace tuning;

constexpr std::size_t request_bytes = 24;  // of oracleGeneral

/// Lines without blanks around their ends, and without a byte order mark before the first.
std::vector<std::string_view> lines_of(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::size_t last = line.find_last_not_of(" \t\r");
    if (last != std::string_view::npos) lines.push_back(line.substr(0, last + 1));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// The files of an import: requests from the file `from`, into the trace `to`.
struct Import {
  TemporaryFolder folder{fuzz_folder_parent()};

  [[nodiscard]] Conversion files() const { return {folder / "from", folder / "to"}; }

  /// Why the trace of what was imported last cannot be read.
  [[nodiscard]] std::string trace_flaw() const {
    const auto end = check_trace(folder / "to");
    return end ? "" : "its trace is refused: " + std::string(end.error().message());
  }
};

/// Reads a trace to its end and writes what it says again.
Status read_trace(const std::filesystem::path& path, const std::filesystem::path& again,
                  TraceCounts counts) {
  TERRACE_ASSIGN(TraceReader reader, TraceReader::open(path, counts));
  TERRACE_ASSIGN(TraceWriter writer, TraceWriter::create(again, reader.head()));
  TERRACE_TRY(reader.for_each([&](const TraceRecord& record) { writer.append(record); }));
  writer.add_losses(reader.end().losses);
  return writer.finish(reader.end().run);
}

/// Returns why no run can have written a trace; empty if a run can.
std::string trace_flaw(std::string_view bytes, const TemporaryFolder& folder) {
  for (const TraceChunk& chunk : trace_chunks(bytes)) {
    if (chunk.is_json() && !is_json(chunk.payload)) return "a chunk of it is no JSON";
  }
  if (const Status known = read_trace(folder / "t", folder / "second", TraceCounts::known);
      !known) {
    return "without its counts it is refused: " + std::string(known.error().message());
  }
  const Status again = read_trace(folder / "again", folder / "third", TraceCounts::checked);
  if (!again) return "what is written of it is refused: " + std::string(again.error().message());
  return read_bytes(folder / "again") == read_bytes(folder / "third") ? ""
                                                                      : "it is not read as written";
}

/// Small traces of each unit.
std::vector<std::string> small_traces() {
  const TemporaryFolder folder(fuzz_folder_parent());
  std::vector<std::string> files;
  for (const TraceUnit unit : {TraceUnit::token, TraceUnit::block, TraceUnit::cluster}) {
    const MadeUp made{.unit = unit, .units = 20, .wanted = 3, .steps = 3, .clusters = true};
    if (unit == TraceUnit::token) {
      write_made_up_tokens(folder / "t", made);
    } else {
      write_made_up(folder / "t", {.unit = unit, .units = 20, .wanted = 3, .steps = 3});
    }
    files.push_back(read_bytes(folder / "t"));
  }
  TraceHead requests = made_up_head({.unit = TraceUnit::cluster});
  requests.prefixes = requests.arrivals = true;
  auto timed = TraceWriter::create(folder / "t", requests).value();
  timed.append({.units = {{.unit = 1, .rows = 16, .size_rows = 16}}, .arrival_ms = 3000});
  timed.append({.units = {{.unit = 2, .rows = 7, .size_rows = 7}}});
  EXPECT_TRUE(timed.finish(std::nullopt).has_value());
  files.push_back(read_bytes(folder / "t"));
  auto writer = TraceWriter::create(folder / "t", token_head()).value();
  using enum TraceRecord::Kind;
  writer.append({.kind = share, .sharers = 2});
  writer.append({.kind = prompt, .sequence = 1, .prompt = {0, 300}, .window_begin = 200});
  writer.append({.kind = load, .sequence = 1, .layer = 1, .position = 300, .loaded_bytes = 1000});
  writer.append({.kind = step_end, .sequence = 1, .offload_bytes = 5, .index_bytes = 200});
  writer.append({.kind = pause, .sequence = 1});
  writer.append({.kind = close, .sequence = 1});
  EXPECT_TRUE(writer.finish(RecordedRun{.decode_seconds = 0.5, .machine = "m"}).has_value());
  files.push_back(read_bytes(folder / "t"));
  return files;
}

std::string request_record(std::uint64_t id, std::uint32_t size, std::int64_t next) {
  std::string record(request_bytes, '\0');
  std::memcpy(record.data() + 4, &id, sizeof id);
  std::memcpy(record.data() + 12, &size, sizeof size);
  std::memcpy(record.data() + 16, &next, sizeof next);
  return record;
}

}  // namespace

FuzzedReader mooncake_reader() {
  const Corpus corpus = read_corpus("mooncake");
  const auto import = std::make_shared<Import>();
  const auto read = [import](std::string_view text) {
    import->folder.write("from", text);
    for (const std::string_view line : lines_of(text)) {
      const ExactCopy copy(line);
      MooncakeRequest().read(copy.text());
    }
    return import_mooncake(import->files());
  };
  const auto flaw = [import](std::string_view text) {
    for (const std::string_view line : lines_of(text)) {
      if (!is_json(line)) return "a line is no JSON: " + escaped(line);
    }
    return import->trace_flaw();
  };
  return {{"mooncake", [corpus](Rng& rng) { return mutate(corpus, rng); }, read, flaw}, corpus};
}

FuzzedReader csv_reader() {
  const Corpus corpus = read_corpus("csv");
  const auto import = std::make_shared<Import>();
  const auto read = [import](std::string_view text) {
    import->folder.write("from", text);
    return import_csv(import->files());
  };
  const auto flaw = [import](std::string_view /*text*/) { return import->trace_flaw(); };
  return {{"csv", [corpus](Rng& rng) { return mutate(corpus, rng); }, read, flaw}, corpus};
}

FuzzedReader oraclegeneral_reader() {
  const std::string three =
      request_record(7, 100, 2) + request_record(1 << 20, 0, -1) + request_record(7, 100, -1);
  const Corpus corpus{{"one", request_record(1, 1, INT64_MAX)}, {"three", three}};
  const auto import = std::make_shared<Import>();
  const auto read = [import](std::string_view text) {
    import->folder.write("from", text);
    return import_oraclegeneral(import->files());
  };
  const auto flaw = [import](std::string_view text) {
    const bool whole = !text.empty() && text.size() % request_bytes == 0;
    return whole ? import->trace_flaw() : "it is no whole number of records";
  };
  return {{"oraclegeneral", [corpus](Rng& rng) { return mutate(corpus, rng); }, read, flaw},
          corpus};
}

FuzzedReader trace_reader() {
  const std::vector<std::string> files = small_traces();
  const auto folder = std::make_shared<TemporaryFolder>(fuzz_folder_parent());
  const auto read = [folder](std::string_view bytes) {
    folder->write("t", bytes);
    return read_trace(*folder / "t", *folder / "again", TraceCounts::checked);
  };
  const auto flaw = [folder](std::string_view bytes) { return trace_flaw(bytes, *folder); };
  Corpus corpus;
  for (const std::string& file : files) corpus.push_back({"made", file});
  return {{"trace", [files](Rng& rng) { return mutate_trace(files, rng); }, read, flaw}, corpus};
}

}  // namespace terrace
