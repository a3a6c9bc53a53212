#include "terrace/tuning/import.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include "core/temporary_folder.hpp"
#include "terrace/offload/parallel.hpp"
#include "terrace/tuning/tuner.hpp"

namespace terrace::tuning {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The message of a refusal of these requests, which leaves no trace file.
std::string refusal(std::string_view text, const MooncakeOptions& options = {}) {
  const TemporaryFolder folder;
  write_text(folder / "m.jsonl", text);
  const Status imported = import_mooncake({folder / "m.jsonl", folder / "t"}, options);
  EXPECT_FALSE(std::filesystem::exists(folder / "t"));
  if (imported) return "taken";
  EXPECT_EQ(imported.error().code, Errc::corrupt);
  return std::string(imported.error().message());
}

/// The trace of these requests, as csv.
std::string imported(std::string_view text, const MooncakeOptions& options = {}) {
  const TemporaryFolder folder;
  write_text(folder / "m.jsonl", text);
  const Status made = import_mooncake({folder / "m.jsonl", folder / "t"}, options);
  if (!made) return std::string(made.error().message());
  const CacheUnit unit{.block_tokens = options.block_tokens};
  EXPECT_TRUE(convert_to_csv({folder / "t", folder / "csv"}, unit).has_value());
  return read_text(folder / "csv");
}

constexpr const char* one_request = R"({"input_length": 1000, "hash_ids": [9, 4]})";

TEST(ImportMooncake, ReadsRequests) {
  EXPECT_EQ(imported("{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 5, "
                     "\"hash_ids\": [900, 17]}\n"
                     "{\"timestamp\": 9, \"input_length\": 1500, \"output_length\": 5, "
                     "\"hash_ids\": [900, 17, 4000000000000]}\n"),
            "key,sequence,layer,step,unit,rows,slots\ns0.l0.u0,0,0,0,0,512,1\ns0.l0.u1,0,0,0,1,488,"
            "1\ns0.l0.u0,0,0,1,0,512,1\n"
            "s0.l0.u1,0,0,1,1,512,1\ns0.l0.u2,0,0,1,2,476,1\n")
      << "a last block that is begun only counts as many tokens as are in it";
}

TEST(ImportMooncake, TakesBlocksOfTheSizeThatItIsTold) {
  EXPECT_EQ(imported(R"({"input_length": 40, "hash_ids": [5, 8, 6]})", {.block_tokens = 16}),
            "key,sequence,layer,step,unit,rows,slots\ns0.l0.u0,0,0,0,0,16,1\ns0.l0.u1,0,0,0,1,16,"
            "1\ns0.l0.u2,0,0,0,2,8,1\n");
}

TEST(ImportMooncake, KeepsTheTimesAtWhichRequestsCame) {
  const TemporaryFolder folder;
  std::string requests;
  for (const char* const time : {"0", "3000", "27.482e3", "1e3", "12.9", "null", "\"noon\"", "-1",
                                 "9007199254740992", "[1]"}) {
    requests += fmt::format(R"({{"timestamp": {}, "input_length": 9, "hash_ids": [1]}})", time);
    requests += '\n';
  }
  requests += R"({"input_length": 9, "hash_ids": [1]})";
  write_text(folder / "m.jsonl", requests);
  ASSERT_TRUE(import_mooncake({folder / "m.jsonl", folder / "t"}).has_value());
  std::vector<std::optional<std::uint64_t>> times;
  TraceReader reader = TraceReader::open(folder / "t").value();
  ASSERT_TRUE(reader.for_each([&](const TraceRecord& record) {
    if (record.kind == TraceRecord::Kind::selection) times.push_back(record.arrival_ms);
  }));
  const auto none = std::nullopt;
  EXPECT_THAT(times,
              testing::ElementsAre(0, 3000, 27482, 1000, 12, none, none, none, none, none, none));
}

TEST(ImportMooncake, GivesBlocksTheWeightOfAModel) {
  const TemporaryFolder folder;
  write_text(folder / "m.jsonl", "{\"input_length\": 600, \"hash_ids\": [7, 3]}\n");
  const ImportedModel model{.name = "a",
                            .fingerprint = "f",
                            .shape = {.layers = 2, .query_heads = 6, .kv_heads = 3, .head_dim = 64},
                            .weight_bytes = 1000};
  ASSERT_TRUE(import_mooncake({folder / "m.jsonl", folder / "t"}, {.model = model}).has_value());
  const TraceHead head = TraceReader::open(folder / "t").value().head();
  EXPECT_EQ(head.shape.layers, 2U);
  EXPECT_EQ(head.shape.kv_heads, 3U);
  EXPECT_EQ(head.weight_bytes, 1000U);
  EXPECT_EQ(head.model_fingerprint, "f");
  EXPECT_EQ(head.slot_tokens(head.recorded()), 512U);
  ASSERT_TRUE(convert_to_csv({folder / "t", folder / "csv"}, {.block_tokens = 512}).has_value());
  EXPECT_EQ(
      read_text(folder / "csv"),
      "key,sequence,layer,step,unit,rows,slots\ns0.l0.u0,0,0,0,0,1536,1\ns0.l0.u1,0,0,0,1,264,1\n"
      "s0.l1.u0,0,1,0,0,1536,1\ns0.l1.u1,0,1,0,1,264,1\n");
}

/// Writes the trace with a record for each layer, as one of a run has.
void write_each_layer(const std::filesystem::path& source, const std::filesystem::path& target) {
  TraceReader reader = TraceReader::open(source).value();
  TraceHead head = reader.head();
  head.layers_alike = false;
  TraceWriter writer = TraceWriter::create(target, head).value();
  const Status read = reader.for_each([&](TraceRecord& record) {
    const bool of_a_layer = record.kind == TraceRecord::Kind::selection;
    for (record.layer = 0; record.layer < (of_a_layer ? head.shape.layers : 1); ++record.layer) {
      writer.append(record);
    }
  });
  ASSERT_TRUE(read.has_value());
  ASSERT_TRUE(writer.finish(std::nullopt).has_value());
}

TEST(ImportMooncake, HasOneLayerForAllAndTheFiguresOfAll) {
  const TemporaryFolder folder;
  std::string requests;
  for (int i = 0; i < 200; ++i) {
    requests += fmt::format("{{\"input_length\": {}, \"hash_ids\": [0, {}, {}, {}]}}\n",
                            3 * 512 + 1 + i, 1 + i % 3, 10 + i * i % 17, 100 + i * i * i % 29);
  }
  write_text(folder / "m.jsonl", requests);
  const ImportedModel model{.name = "a",
                            .fingerprint = "f",
                            .shape = {.layers = 4, .query_heads = 6, .kv_heads = 3, .head_dim = 64},
                            .weight_bytes = 1000};
  ASSERT_TRUE(import_mooncake({folder / "m.jsonl", folder / "one"}, {.model = model}).has_value());
  write_each_layer(folder / "one", folder / "each");
  EXPECT_EQ(check_trace(folder / "one").value().layer_steps, 200U);
  EXPECT_EQ(check_trace(folder / "each").value().layer_steps, 800U);
  const auto tuned = [&](const char* name) {
    const TuneRequest request{.trace = folder / name,
                              .device_memory = std::size_t{30} << 20,
                              .costs = {.link = {.bandwidth_bytes_per_second = 1e9},
                                        .select_seconds = 1e-5,
                                        .attend_seconds = 1e-4}};
    return tune(request, *offload::make_parallel({.threads = 1}).value()).value();
  };
  const TuneResult one = tuned("one");
  const TuneResult each = tuned("each");
  EXPECT_EQ(describe_trace(one), describe_trace(each));
  ASSERT_EQ(one.rows.size(), each.rows.size());
  for (std::size_t i = 0; i < one.rows.size(); ++i) {
    const TunedRow& a = one.rows[i];
    const TunedRow& b = each.rows[i];
    EXPECT_EQ(describe(a), describe(b));
    EXPECT_EQ(a.outcome.cache.rows_hit, b.outcome.cache.rows_hit);
    EXPECT_EQ(a.outcome.cache.blocks_missed, b.outcome.cache.blocks_missed);
    EXPECT_EQ(a.outcome.cache.admitted, b.outcome.cache.admitted);
    EXPECT_EQ(a.outcome.bytes.demand, b.outcome.bytes.demand);
    EXPECT_EQ(a.outcome.bytes.refill, b.outcome.bytes.refill);
    EXPECT_EQ(a.outcome.slot_steps, b.outcome.slot_steps);
    EXPECT_DOUBLE_EQ(a.outcome.seconds, b.outcome.seconds);
    EXPECT_DOUBLE_EQ(a.optimum_rows, b.optimum_rows);
  }
}

TEST(ImportMooncake, RefusesLengthsThatDisagreeWithTheIds) {
  const std::string first = R"({"input_length": 521, "hash_ids": [900)";
  std::string line = first;
  for (int id = 901; id < 933; ++id) line += ", " + std::to_string(id);
  EXPECT_THAT(
      refusal("\n" + line + "]}"),
      AllOf(HasSubstr("m.jsonl:2: input_length 521 has 2 blocks of 512 tokens, and hash_ids "
                      "33; --block-tokens 16 would fit"),
            HasSubstr("up to here")));
  EXPECT_THAT(refusal(R"({"input_length": 100000, "hash_ids": [3, 4]})"),
              HasSubstr("196 blocks of 512 tokens, and hash_ids 2; --block-tokens 65536 would"));
  EXPECT_THAT(refusal(R"({"input_length": 90, "hash_ids": [3, 4, 5]})"),
              HasSubstr("--block-tokens 32 would"));
  EXPECT_THAT(refusal(R"({"input_length": 72, "hash_ids": [3, 4, 5]})"),
              HasSubstr("--block-tokens 32 would"));
  EXPECT_THAT(refusal(R"({"input_length": 120, "hash_ids": [3, 4, 5]})"),
              HasSubstr("--block-tokens 40 would"))
      << "40 to 59 fit, and no power of two is among them";
}

TEST(ImportMooncake, NamesASizeOnlyIfItFitsTheLinesBeforeToo) {
  const std::string before = R"({"input_length": 65, "hash_ids": [1, 2]})";  // 33 to 64
  EXPECT_THAT(refusal(before + "\n" + R"({"input_length": 90, "hash_ids": [1, 2, 3]})",
                      {.block_tokens = 64}),
              AllOf(HasSubstr("m.jsonl:2: "), HasSubstr("--block-tokens 33 would fit")))
      << "30 to 44 fit the second";
  EXPECT_THAT(refusal(before + "\n" + R"({"input_length": 40, "hash_ids": [1, 2, 3]})",
                      {.block_tokens = 64}),
              HasSubstr("no size of blocks fits all lines up to here"));
  for (const char* const none : {R"({"input_length": 2, "hash_ids": [1, 2, 3]})",
                                 R"({"input_length": 18446744073709551615, "hash_ids": [1]})"}) {
    EXPECT_THAT(refusal(none), HasSubstr("no size of blocks fits")) << none;
  }
}

TEST(ImportMooncake, RefusesFlawsThatItsJsonParserOverlooks) {
  const std::string request = one_request;
  using namespace std::string_literals;
  for (const std::string& line : {request + "\0"s, request + "\0 more"s, "\xEF\xBB\xBF" + request,
                                  request + "\v", request + "\f"}) {
    EXPECT_THAT(refusal(request + "\n" + line), HasSubstr("m.jsonl:2: no JSON: ")) << line;
  }
}

TEST(ImportMooncake, TakesOtherSpellingsOfTheSameRequests) {
  const std::string plain = imported(std::string(one_request) + "\n" + one_request + "\n");
  EXPECT_THAT(plain, HasSubstr("s0.l0.u1,0,0,1,1,488,1\n"));
  const std::string request = one_request;
  for (const std::string& text :
       {request + "\n" + request, request + "\r\n" + request + "\r\n",
        "\xEF\xBB\xBF" + request + "\n" + request, "\xEF\xBB\xBF\n" + request + "\n" + request,
        "\n \t\n\r\n" + request + "\n\n \r\n" + request + "\n   ",
        "  " + request + " \n\t" + request + "\t\n",
        R"({"hash_ids": [9.0, 4e0], "input_length": 1e3})" + ("\n" + request),
        R"({"turn": [{"hash_ids": "x"}], "hash_ids": [9, 4], "input_length": 1000.0, "n": null})" +
            ("\n" + request)}) {
    EXPECT_EQ(imported(text), plain) << text;
  }
}

TEST(ImportMooncake, NamesTheLineThatIsNoRequest) {
  const std::pair<const char*, const char*> lines[] = {
      {"nonsense", "no JSON: column 2: syntax error while parsing value - invalid literal"},
      {R"({"input_length": 9, "hash_ids": [1)", "unexpected end of input"},
      {R"({"input_length": 9, "hash_ids": [1]} {})", "no JSON: column 38: "},
      {R"({"input_length": 1e999, "hash_ids": [1]})", "number overflow"},
      {"{\"a\": \"\xFF\", \"input_length\": 9, \"hash_ids\": [1]}", "UTF-8"},
      {"[1]", "no JSON object"},
      {"1024", "no JSON object"},
      {R"({"hash_ids": [1]})", "no field input_length"},
      {R"({"input_length": 9})", "no field hash_ids"},
      {R"({"a": {"input_length": 9}, "hash_ids": [1]})", "no field input_length"},
      {R"({"input_length": 0, "hash_ids": [1]})", "input_length"},
      {R"({"input_length": -5, "hash_ids": [1]})", "input_length"},
      {R"({"input_length": "9", "hash_ids": [1]})", "input_length"},
      {R"({"input_length": 9.5, "hash_ids": [1]})", "input_length"},
      {R"({"input_length": null, "hash_ids": [1]})", "input_length"},
      {R"({"input_length": [9], "hash_ids": [1]})", "input_length"},
      {R"({"input_length": 9, "hash_ids": 3})", "no list"},
      {R"({"input_length": 9, "hash_ids": {"a": 1}})", "no list"},
      {R"({"input_length": 9, "hash_ids": []})", "no list"},
      {R"({"input_length": 9, "hash_ids": ["a"]})", "an id"},
      {R"({"input_length": 9, "hash_ids": [[1]]})", "an id"},
      {R"({"input_length": 9, "hash_ids": [1, -1]})", "an id"},
      {R"({"input_length": 9, "hash_ids": [1.5]})", "an id"},
      {R"({"input_length": 9, "hash_ids": [9007199254740993.0]})", "an id"}};
  for (const auto& [line, wrong] : lines) {
    EXPECT_THAT(refusal(fmt::format("{}\n{}", one_request, line)),
                AllOf(HasSubstr("m.jsonl:2: "), HasSubstr(wrong)))
        << line;
  }
  EXPECT_THAT(refusal(""), HasSubstr("holds no request"));
  EXPECT_THAT(refusal("\xEF\xBB\xBF\r\n  \n"), HasSubstr("holds no request"));
}

TEST(ImportMooncake, SaysWhichOtherFileItIs) {
  EXPECT_THAT(refusal("\x28\xB5\x2F\xFD rest"),
              HasSubstr("m.jsonl:1: the file is compressed by zstd"));
  EXPECT_THAT(refusal("\x1F\x8B\x08 rest"), HasSubstr("gunzip"));
  EXPECT_THAT(refusal("TRRCTRC5"), HasSubstr("a trace of terrace already"));
  EXPECT_THAT(refusal(std::string_view("\xFF\xFE{\0", 4)), HasSubstr("UTF-16"));
}

TEST(ImportMooncake, TakesLongLinesButNoneWithoutEnd) {
  const std::string blanks((std::size_t{1} << 25), ' ');
  const std::string taken = one_request + blanks + "\n";
  EXPECT_THAT(imported(taken + taken), HasSubstr("s0.l0.u1,0,0,1,1,488,1\n"));
  EXPECT_THAT(refusal(taken + one_request + blanks + blanks),
              HasSubstr("m.jsonl:2: the line is longer than 64 MiB"));
}

TEST(ImportMooncake, TellsReadErrorsFromWrongLines) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "m.jsonl");  // opens, and fails to read
  const std::pair<std::filesystem::path, const char*> files[] = {
      {folder / "m.jsonl", "m.jsonl: cannot be read: Is a directory"},
      {"/proc/self/mem", "/proc/self/mem: cannot be read: Input/output error"},
      {folder / "none", "none: cannot be read: No such file"}};
  for (const auto& [file, reason] : files) {
    const Status read = import_mooncake({file, folder / "t"});
    ASSERT_FALSE(read.has_value()) << file;
    EXPECT_EQ(read.error().code, Errc::io_error);
    EXPECT_THAT(std::string(read.error().message()), HasSubstr(reason));
  }
}

TEST(ImportMooncake, TellsThatAFileWasCutWhileItWasRead) {
  const TemporaryFolder folder;
  std::string text;
  while (text.size() < 1 << 20) text.append(one_request).append("\n");
  write_text(folder / "m.jsonl", text);
  const auto cut = [&](double /*share*/) {
    std::filesystem::resize_file(folder / "m.jsonl", 3000);
  };
  const Status read = import_mooncake({folder / "m.jsonl", folder / "t", cut});
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Errc::io_error);
  EXPECT_THAT(std::string(read.error().message()), HasSubstr("was cut from"));
  EXPECT_FALSE(std::filesystem::exists(folder / "t"));
}

/// The trace of what an import of objects takes, as csv without its head, or why it takes nothing.
template <typename Import>
std::string imported_objects(std::string_view bytes, Import import, ObjectOptions options = {}) {
  const TemporaryFolder folder;
  write_text(folder / "o", bytes);
  const Status made = import({folder / "o", folder / "t"}, options);
  EXPECT_EQ(made.has_value(), std::filesystem::exists(folder / "t"));
  if (!made) return std::string(made.error().message());
  EXPECT_TRUE(convert_to_csv({folder / "t", folder / "csv"}, {.block_tokens = 1}).has_value());
  std::string text = read_text(folder / "csv");
  return text.substr(text.find('\n') + 1);
}

constexpr const char* two_objects =
    "s0.l0.u0,0,0,0,0,30,30\ns0.l0.u1,0,0,1,1,1,1\ns0.l0.u0,0,0,2,0,30,30\n";

TEST(ImportCsv, ReadsRequestsOfObjects) {
  const auto read = [](std::string_view text, ObjectOptions options = {}) {
    return imported_objects(text, &import_csv, options);
  };
  for (const char* const text :
       {"1,a,30\n2,b,0\n3,a,30\n", "time,obj_id,obj_size\r\n1,a,30\r\n2,b,1\r\n3,a,30",
        "\xEF\xBB\xBFtime\tid\tsize\tttl\n\n1\ta\t3e1\t9\n2\tb\t1.0\t9\n3\ta\t30\t9\n",
        " 1 | \"a,1\" | 30\n2 | b | 1\n3 | \"a,1\" | 30\n", "1;77;30\n2;077;1\n3;77;30\n"}) {
    EXPECT_EQ(read(text), two_objects) << text;
  }
  EXPECT_EQ(read("x,30,1,a\nx,1,2,b\nx,30,3,a\n", {.id_column = 4, .size_column = 2}), two_objects);
  EXPECT_EQ(read("1,a\n2,b\n", {.ignore_sizes = true}),
            "s0.l0.u0,0,0,0,0,1,1\ns0.l0.u1,0,0,1,1,1,1\n");
}

TEST(ImportCsv, NamesTheLineThatIsNoRequest) {
  const std::pair<const char*, const char*> lines[] = {
      {"2", "no obj_id in column 2 of 1"},
      {"2,,5", "no obj_id in column 2 of 3"},
      {"2,b", "obj_size in column 3 of 2 is no whole number up to 4294967295"},
      {"2,b,x", "obj_size in column 3"},
      {"2,b,-1", "obj_size in column 3"},
      {"2,b,1.5", "obj_size in column 3"},
      {"2,b,4294967296", "obj_size in column 3"},
      {"2,\"b,5", "quote"}};
  for (const auto& [line, wrong] : lines) {
    const std::string text = std::string("time,id,size\n1,a,30\n") + line + "\n";
    EXPECT_THAT(imported_objects(text, &import_csv), AllOf(HasSubstr("o:3: "), HasSubstr(wrong)))
        << line;
  }
  EXPECT_THAT(imported_objects("time,id,size\n", &import_csv), HasSubstr("holds no request"));
}

TEST(ImportCsv, RefusesOneColumnForBothIdAndSize) {
  EXPECT_THAT(imported_objects("1,2,30\n", &import_csv, {.id_column = 3}),
              HasSubstr("--obj-id-col and --obj-size-col are both 3"));
  EXPECT_THAT(imported_objects("1,2,30\n", &import_csv, {.id_column = 3, .ignore_sizes = true}),
              HasSubstr("s0.l0.u0,0,0,0,0,1,1"));
}

std::string record(std::uint32_t time, std::uint64_t id, std::uint32_t size, std::int64_t next) {
  std::string bytes;
  const auto put = [&bytes](std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  };
  put(time, 4);
  put(id, 8);
  put(size, 4);
  put(static_cast<std::uint64_t>(next), 8);
  return bytes;
}

TEST(ImportOracleGeneral, ReadsRequestsOfObjects) {
  constexpr std::uint64_t large = 0xFFFF'FFFF'FFFF'FFF0;
  const std::string text = record(0x8B1F, large, 30, 3) + record(2, 5, 0, -1) +
                           record(3, large, 30, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(imported_objects(text, &import_oraclegeneral), two_objects)
      << "a time may begin as what gzip writes does";
  EXPECT_EQ(imported_objects(record(1, 7, 5, -1), &import_oraclegeneral, {.ignore_sizes = true}),
            "s0.l0.u0,0,0,0,0,1,1\n");
}

TEST(ImportOracleGeneral, ReadsMoreThanIsReadAtATime) {
  std::string text;
  for (std::uint64_t i = 0; i < 20'000; ++i) text += record(1, i % 7, 1, -1);
  const std::string csv = imported_objects(text, &import_oraclegeneral);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 20'000);
  EXPECT_THAT(csv, testing::EndsWith("s0.l0.u0,0,0,19999,0,1,1\n")) << 19'999 % 7;
}

TEST(ImportOracleGeneral, SaysWhatIsWrong) {
  const auto read = [](const std::string& text) {
    return imported_objects(text, &import_oraclegeneral);
  };
  EXPECT_THAT(read(record(1, 2, 3, -1) + std::string(7, 'x')),
              HasSubstr("o: record 2 ends after 7 of 24 bytes"));
  EXPECT_THAT(read("time,obj_id,obj_size\n1,2"), HasSubstr("record 1: its next request is"));
  EXPECT_THAT(read(std::string(48, '1')), HasSubstr("record 1: its next request is beyond"));
  EXPECT_THAT(read("\x28\xB5\x2F\xFD and so on"), HasSubstr("compressed by zstd; unpack"));
  EXPECT_THAT(read(""), HasSubstr("holds no request"));
}

TEST(ImportMooncake, TellsHowFarItIs) {
  const TemporaryFolder folder;
  write_text(folder / "m.jsonl", std::string(one_request) + "\n\n" + one_request);
  std::vector<double> shares;
  const auto keep = [&](double share) { shares.push_back(share); };
  ASSERT_TRUE(import_mooncake({folder / "m.jsonl", folder / "t", keep}).has_value());
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_GT(shares.front(), 0);
  EXPECT_LT(shares.front(), shares.back());
  EXPECT_EQ(shares.back(), 1) << "no newline ends the last line";
}

}  // namespace
}  // namespace terrace::tuning
