#include "terrace/tuning/trace_file.hpp"

#include <gmock/gmock.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "contract/fuzz.hpp"
#include "core/temporary_folder.hpp"
#include "terrace/core/replace_file.hpp"
#include "tuning/same_cache.hpp"
#include "tuning/trace_bytes.hpp"

namespace terrace::tuning {
namespace {

using testing::HasSubstr;

TraceRecord random_record(Rng& rng) {
  TraceRecord record;
  record.kind = static_cast<TraceRecord::Kind>(rng.below(7));
  record.sequence = rng.below(5);
  record.sharers = 1 + rng.below(1000);
  record.prompt = {rng.below(100), 100 + rng.below(100'000)};
  record.placed_begin = rng.below(50);
  record.offload_bytes = rng();
  record.index_bytes = rng.below(1 << 20);
  record.ids_bytes = rng.below(record.index_bytes + 1);
  record.loaded_bytes = rng();
  record.layer = rng.below(2);
  record.position = rng.below(1 << 20);
  record.sinks_end = rng.below(64);
  record.window_begin = record.position - std::min<std::uint64_t>(record.position, rng.below(999));
  if (record.kind == TraceRecord::Kind::prompt) {
    record.window_begin = record.placed_begin + rng.below(50);
  }
  record.resident_head = rng.below(9);
  record.resident_tail = rng.below(1 << 15);
  for (std::size_t head = 0; head < 2; ++head) {
    std::vector<std::uint32_t> ids;
    for (std::uint64_t i = rng.below(50); i > 0; --i) {
      ids.push_back(static_cast<std::uint32_t>(rng.below(record.position + 1)));
    }
    std::ranges::sort(ids);
    ids.erase(std::ranges::unique(ids).begin(), ids.end());
    record.positions.insert(record.positions.end(), ids.begin(), ids.end());
    record.head_counts.push_back(static_cast<std::uint32_t>(ids.size()));
  }
  UnitKey unit = 0;
  for (std::uint64_t i = rng.below(record.positions.size() + 1); i > 0; --i) {
    unit += static_cast<UnitKey>(1 + rng.below(200));
    record.units.push_back(
        {.unit = unit, .rows = 1, .size_rows = static_cast<std::uint32_t>(1 + rng.below(300))});
  }
  record.renamed = rng.below(2) != 0;
  if (rng.below(3) != 0) record.arrival_ms = rng() >> (11 + rng.below(50));
  return record;
}

void expect_same(const TraceRecord& a, const TraceRecord& b) {
  ASSERT_EQ(a.kind, b.kind);
  ASSERT_EQ(a.sequence, b.sequence);
  if (a.kind == TraceRecord::Kind::share) {
    ASSERT_EQ(a.sharers, b.sharers);
  }
  if (a.kind == TraceRecord::Kind::prompt) {
    ASSERT_EQ(a.layer, b.layer);
    ASSERT_EQ(a.prompt, b.prompt);
    ASSERT_EQ(a.window_begin, b.window_begin);
    ASSERT_EQ(a.placed_begin, b.placed_begin);
  }
  if (a.kind == TraceRecord::Kind::step_end) {
    ASSERT_EQ(a.offload_bytes, b.offload_bytes);
    ASSERT_EQ(a.index_bytes, b.index_bytes);
    ASSERT_EQ(a.ids_bytes, b.ids_bytes);
  }
  const bool loads = a.kind == TraceRecord::Kind::load;
  if (!loads && a.kind != TraceRecord::Kind::selection) return;
  ASSERT_EQ(a.layer, b.layer);
  ASSERT_EQ(a.position, b.position);
  ASSERT_EQ(a.window_begin, b.window_begin);
  if (loads) {
    ASSERT_EQ(a.loaded_bytes, b.loaded_bytes);
    return;
  }
  ASSERT_EQ(a.sinks_end, b.sinks_end);
  ASSERT_EQ(a.resident_head, b.resident_head);
  ASSERT_EQ(a.resident_tail, b.resident_tail);
  ASSERT_EQ(a.head_counts, b.head_counts);
  ASSERT_EQ(a.positions, b.positions);
  ASSERT_EQ(a.units, b.units);
  ASSERT_EQ(a.renamed, b.renamed);
  ASSERT_EQ(a.arrival_ms, b.arrival_ms);
}

void expect_same(const RecordedRun& a, const RecordedRun& b) {
  expect_same_counters(a.cache, b.cache);
  EXPECT_EQ(a.bytes.offload, b.bytes.offload);
  EXPECT_EQ(a.bytes.demand, b.bytes.demand);
  EXPECT_EQ(a.bytes.refill, b.bytes.refill);
  EXPECT_EQ(a.bytes.index, b.bytes.index);
  EXPECT_EQ(a.decode_seconds, b.decode_seconds);
  EXPECT_EQ(a.link_seconds, b.link_seconds);
  EXPECT_EQ(a.select_seconds, b.select_seconds);
  EXPECT_EQ(a.upkeep_seconds, b.upkeep_seconds);
  EXPECT_EQ(a.fixed_device_bytes, b.fixed_device_bytes);
  EXPECT_EQ(a.machine, b.machine);
}

TEST(TraceFile, GivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  const std::uint64_t seed = fuzz_seed(3);
  Rng rng(seed);
  std::vector<TraceRecord> records;
  for (int i = 0; i < 20'000; ++i) records.push_back(random_record(rng));
  auto writer = TraceWriter::create(folder / "t", token_head()).value();
  for (const TraceRecord& record : records) writer.append(record);
  const RecordedRun run{.cache = {.rows_hit = 7,
                                  .rows_missed = 8,
                                  .rows_resident = 9,
                                  .blocks_hit = 10,
                                  .blocks_missed = 11,
                                  .admitted = 12,
                                  .adopted = 13,
                                  .evicted = 14,
                                  .refused = 15},
                        .bytes = {.offload = 16, .demand = 17, .refill = 18, .index = 19},
                        .decode_seconds = 0.25,
                        .link_seconds = 0.5,
                        .select_seconds = 0.75,
                        .upkeep_seconds = 0.125,
                        .fixed_device_bytes = 20,
                        .machine = "here"};
  ASSERT_TRUE(writer.finish(run).has_value());
  EXPECT_GT(std::filesystem::file_size(folder / "t"), std::size_t{1} << 19) << "several chunks";

  auto reader = TraceReader::open(folder / "t").value();
  const TraceHead& head = reader.head();
  EXPECT_EQ(head.unit, token_head().unit);
  EXPECT_EQ(head.source, token_head().source);
  EXPECT_EQ(head.model.substr(0, 9), token_head().model.substr(0, 9)) << "the rest is no UTF-8";
  EXPECT_EQ(head.model_fingerprint, token_head().model_fingerprint);
  EXPECT_EQ(head.weight_bytes, token_head().weight_bytes);
  EXPECT_EQ(head.budget, token_head().budget);
  EXPECT_EQ(head.shape, token_head().shape);
  EXPECT_EQ(head.placement, token_head().placement);
  EXPECT_EQ(head.block_tokens, token_head().block_tokens);
  EXPECT_EQ(head.slot_rows, token_head().slot_rows);
  EXPECT_EQ(head.sink_tokens, token_head().sink_tokens);
  EXPECT_EQ(head.window_tokens, token_head().window_tokens);
  EXPECT_EQ(head.selected_tokens, token_head().selected_tokens);
  EXPECT_EQ(head.context_tokens, token_head().context_tokens);
  EXPECT_EQ(head.seed, token_head().seed);
  EXPECT_EQ(reader.head().policy, "oracle");
  EXPECT_EQ(reader.head().settings, token_head().settings);
  EXPECT_EQ(reader.head().cache, token_head().cache);
  EXPECT_EQ(reader.head().staged_rows, 77U);
  TraceRecord record;
  for (const TraceRecord& written : records) {
    ASSERT_TRUE(reader.next(record).value()) << replay(seed, 0);
    expect_same(record, written);
  }
  EXPECT_FALSE(reader.next(record).value());
  EXPECT_FALSE(reader.next(record).value());
  expect_same(reader.end().run.value(), run);
  EXPECT_DOUBLE_EQ(reader.progress(), 1);
}

TEST(TraceFile, IsNotThereUntilItIsFinished) {
  const TemporaryFolder folder;
  {
    auto writer = TraceWriter::create(folder / "t", token_head()).value();
    writer.append({.kind = TraceRecord::Kind::step_end});
    EXPECT_FALSE(std::filesystem::exists(folder / "t"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "nothing half-written stays behind";
  EXPECT_EQ(TraceWriter::create(folder / "no/such/folder", token_head()).error().code,
            Errc::io_error);
}

TEST(TraceFile, OfTwoWritersEachWritesAllOfIt) {
  const TemporaryFolder folder;
  auto one = TraceWriter::create(folder / "t", token_head()).value();
  auto other = TraceWriter::create(folder / "t", token_head()).value();
  one.append({.kind = TraceRecord::Kind::step_end});
  ASSERT_TRUE(one.finish(std::nullopt).has_value());
  EXPECT_EQ(check_trace(folder / "t").value().steps, 1U);
  for (int i = 0; i < 3; ++i) other.append({.kind = TraceRecord::Kind::step_end});
  ASSERT_TRUE(other.finish(std::nullopt).has_value());
  EXPECT_EQ(check_trace(folder / "t").value().steps, 3U) << "the last to finish";
}

TEST(TraceFile, FindsEveryFlippedBit) {
  const TemporaryFolder folder;
  write_made_up(folder / "t", {.layers = 1, .steps = 2});
  const std::string whole = read_bytes(folder / "t");
  ASSERT_TRUE(check_trace(folder / "t").has_value());
  // In place: a file for each bit would take long to write.
  std::fstream file(folder / "t", std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t at, int byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
    return file.good();
  };
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    const std::size_t at = bit / 8;
    ASSERT_TRUE(put(at, whole[at] ^ (1 << bit % 8)));
    const auto checked = check_trace(folder / "t");
    ASSERT_FALSE(checked.has_value()) << "bit " << bit % 8 << " of byte " << at;
    ASSERT_EQ(checked.error().code, Errc::corrupt);
    ASSERT_TRUE(put(at, whole[at]));
  }
  EXPECT_TRUE(check_trace(folder / "t").has_value());
}

TEST(TraceFile, FindsThatItWasCutOrGrew) {
  const TemporaryFolder folder;
  write_made_up(folder / "t", {.steps = 3});
  const std::string whole = read_bytes(folder / "t");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_bytes(folder / "cut", whole.substr(0, size));
    const auto checked = check_trace(folder / "cut");
    ASSERT_FALSE(checked.has_value()) << size;
    ASSERT_EQ(checked.error().code, Errc::corrupt);
  }
  write_bytes(folder / "long", whole + "x");
  EXPECT_THAT(std::string(check_trace(folder / "long").error().message()), HasSubstr("after"));
}

/// Returns the outcome of writing one record.
Status write_one(TraceUnit unit, const TraceRecord& record, const std::filesystem::path& path,
                 bool clusters = false) {
  const TraceHead head =
      made_up_head({.unit = unit, .clusters = clusters || unit == TraceUnit::cluster});
  auto writer = TraceWriter::create(path, head).value();
  writer.append(record);
  writer.append({.kind = TraceRecord::Kind::close});
  return writer.finish(std::nullopt);
}

TEST(TraceFile, IsNotWrittenWithWhatNoReaderWouldTake) {
  const TemporaryFolder folder;
  constexpr UnitKey too_large = 1U << 24;
  const TraceRecord right{.position = 100};
  const auto with = [&](auto alter) {
    TraceRecord record = right;
    alter(record);
    return record;
  };
  const auto of_units = [&](std::vector<SelectedUnit> units) {
    return with([&](TraceRecord& record) { record.units = std::move(units); });
  };
  const auto of_positions = [&](std::vector<std::uint32_t> positions) {
    return with([&](TraceRecord& record) {
      record.head_counts = {static_cast<std::uint32_t>(positions.size()), 0};
      record.positions = std::move(positions);
    });
  };
  EXPECT_TRUE(write_one(TraceUnit::block, of_units({{.unit = 0}, {.unit = 9}}), folder / "t"));
  EXPECT_TRUE(check_trace(folder / "t"));
  EXPECT_TRUE(write_one(TraceUnit::token, of_positions({0, 9}), folder / "t"));
  EXPECT_TRUE(check_trace(folder / "t"));
  std::filesystem::remove(folder / "t");

  const auto refused = [&](TraceUnit unit, const TraceRecord& record) {
    const Status written = write_one(unit, record, folder / "t");
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    if (written) return std::string("nothing");
    EXPECT_EQ(written.error().code, Errc::invalid_argument);
    return std::string(written.error().message());
  };
  for (const TraceRecord& wrong :
       {of_units({{.unit = 9}, {.unit = 9}}), of_units({{.unit = 9}, {.unit = 3}}),
        of_units({{.unit = 0}, {.unit = 0}})}) {
    EXPECT_THAT(refused(TraceUnit::block, wrong), HasSubstr("units that do not ascend"));
  }
  EXPECT_THAT(refused(TraceUnit::block, of_units({{.unit = too_large}})),
              HasSubstr("a unit above 2^24"));
  EXPECT_THAT(refused(TraceUnit::cluster, of_units({{.unit = 1}})),
              HasSubstr("a cluster without rows"));
  EXPECT_THAT(refused(TraceUnit::token, of_positions({9, 9})), HasSubstr("do not ascend"));
  EXPECT_THAT(refused(TraceUnit::token, of_positions({9, 3})), HasSubstr("do not ascend"));
  EXPECT_THAT(refused(TraceUnit::token, of_positions({101})), HasSubstr("after its token"));
  EXPECT_THAT(refused(TraceUnit::token, right), HasSubstr("heads"));
  EXPECT_THAT(refused(TraceUnit::block, with([](TraceRecord& record) { record.layer = 2; })),
              HasSubstr("layer"));
  EXPECT_THAT(
      refused(TraceUnit::block, with([](TraceRecord& record) { record.window_begin = 101; })),
      HasSubstr("window"));
  const TraceRecord far{.kind = TraceRecord::Kind::load, .position = too_large};
  EXPECT_THAT(refused(TraceUnit::block, far), HasSubstr("a position above 2^24"));
  EXPECT_TRUE(write_one(TraceUnit::cluster, far, folder / "t"));
  std::filesystem::remove(folder / "t");
  EXPECT_THAT(refused(TraceUnit::cluster, {.kind = TraceRecord::Kind::close, .sequence = 1 << 24}),
              HasSubstr("sequence 16777216 has a record with a sequence number above 2^24"));
}

TEST(TraceFile, IsNotWrittenWithNumbersBeyondAnyRun) {
  const TemporaryFolder folder;
  const auto refused = [&](const TraceRecord& record) {
    const Status written = write_one(TraceUnit::block, record, folder / "t");
    return written ? std::string("nothing") : std::string(written.error().message());
  };
  constexpr std::size_t beyond = (std::size_t{1} << 48) + 1;
  for (std::size_t TraceRecord::* const field :
       {&TraceRecord::sinks_end, &TraceRecord::resident_head, &TraceRecord::resident_tail}) {
    TraceRecord far{.position = 100};
    far.*field = beyond;
    EXPECT_THAT(refused(far), HasSubstr("after position 2^48"));
  }
  const TraceRecord prompt{.kind = TraceRecord::Kind::prompt, .prompt = {SIZE_MAX - 3, SIZE_MAX}};
  EXPECT_THAT(refused(prompt), HasSubstr("a prompt after position 2^48"));
  const TraceRecord share{.kind = TraceRecord::Kind::share, .sharers = std::size_t{1} << 62};
  EXPECT_THAT(refused(share), HasSubstr("a cache that more than 2^24 share"));
}

TEST(TraceFile, IsNotWrittenWithClustersThatItsTokensCannotBeIn) {
  const TemporaryFolder folder;
  const auto write = [&](std::vector<SelectedUnit> clusters) {
    return write_one(
        TraceUnit::token,
        {.position = 100, .head_counts = {2, 0}, .positions = {0, 9}, .units = std::move(clusters)},
        folder / "t", /*clusters=*/true);
  };
  EXPECT_TRUE(write({{.unit = 3, .rows = 2, .size_rows = 5}}));
  EXPECT_TRUE(check_trace(folder / "t"));
  for (const auto& [wrong, clusters] :
       std::initializer_list<std::pair<const char*, std::vector<SelectedUnit>>>{
           {"a cluster without rows", {{.unit = 3, .rows = 2}}},
           {"units that do not ascend",
            {{.unit = 3, .rows = 1, .size_rows = 5}, {.unit = 3, .rows = 1, .size_rows = 5}}},
           {"more rows of clusters than positions", {{.unit = 3, .rows = 3, .size_rows = 5}}}}) {
    const Status written = write(clusters);
    ASSERT_FALSE(written.has_value()) << wrong;
    EXPECT_THAT(std::string(written.error().message()), HasSubstr(wrong));
  }
}

TEST(TraceFile, RefusesARecordThatIsNotRightThoughItsChecksumIs) {
  const TemporaryFolder folder;
  const TraceRecord record{.kind = TraceRecord::Kind::close, .sequence = 1};
  ASSERT_TRUE(write_one(TraceUnit::block, record, folder / "t"));
  std::string bytes = read_bytes(folder / "t");
  // The record's chunk follows the head's; each follows a header with the hash as its last 8 bytes.
  constexpr std::size_t hashed = 16;
  constexpr std::size_t header = 24;
  std::uint32_t head_bytes = 0;
  std::memcpy(&head_bytes, &bytes[8 + 4], sizeof head_bytes);
  const std::size_t chunk = 8 + header + head_bytes;
  constexpr std::size_t payload = 4;  // two records of a kind and a number
  ASSERT_EQ(bytes[chunk + header], static_cast<char>(TraceRecord::Kind::close));
  bytes[chunk + header] = 7;  // no kind
  const std::uint64_t hash =
      XXH64(&bytes[chunk + header], payload, XXH64(&bytes[chunk], hashed, 0));
  std::memcpy(&bytes[chunk + hashed], &hash, sizeof hash);
  write_bytes(folder / "t", bytes);
  const auto read = check_trace(folder / "t");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Errc::corrupt);
  EXPECT_THAT(std::string(read.error().message()), HasSubstr("a record of chunk 1"));
}

TEST(TraceFile, SaysWhatIsNoTrace) {
  const TemporaryFolder folder;
  EXPECT_EQ(TraceReader::open(folder / "none").error().code, Errc::io_error);
  const auto device = TraceReader::open("/dev/null");
  EXPECT_EQ(device.error().code, Errc::io_error);
  EXPECT_THAT(std::string(device.error().message()), HasSubstr("/dev/null: a trace is read from"));
  write_bytes(folder / "text", "some text that is no trace at all");
  EXPECT_THAT(std::string(TraceReader::open(folder / "text").error().message()),
              HasSubstr("no trace"));
  write_made_up(folder / "t", {.steps = 1});
  std::string older = read_bytes(folder / "t");
  older[7] = '2';
  write_bytes(folder / "older", older);
  EXPECT_THAT(std::string(TraceReader::open(folder / "older").error().message()),
              testing::AllOf(HasSubstr("another version"), HasSubstr("in format 2"),
                             HasSubstr("record it anew")));
  older[7] = '\x9b';  // to a terminal the start of an order
  write_bytes(folder / "older", older);
  EXPECT_THAT(std::string(TraceReader::open(folder / "older").error().message()),
              HasSubstr("in format 0x9b, "));
}

TEST(TraceFile, HasLayersThatAreAlikeWhereNoRunWasRecorded) {
  const TemporaryFolder folder;
  TraceHead head = token_head();
  head.layers_alike = true;
  ASSERT_TRUE(TraceWriter::create(folder / "run", head).value().finish(std::nullopt).has_value());
  EXPECT_THAT(std::string(TraceReader::open(folder / "run").error().message()),
              HasSubstr("layers of a run select by themselves"));
  head.policy.clear();
  TraceWriter writer = TraceWriter::create(folder / "requests", head).value();
  TraceRecord record{.kind = TraceRecord::Kind::selection, .layer = 1};
  writer.append(record);
  EXPECT_THAT(std::string(writer.finish(std::nullopt).error().message()), HasSubstr("a layer"));
}

TEST(TraceFile, KnowsItsModel) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "model");
  write_bytes(folder / "model/config.json", "{}");
  TraceHead head = token_head();
  head.model_fingerprint = model_fingerprint(folder / "model").value();
  EXPECT_TRUE(check_model(head, folder / "model").has_value());
  write_bytes(folder / "model/config.json", "{} ");
  EXPECT_EQ(check_model(head, folder / "model").error().code, Errc::invalid_argument);
  const Error nowhere = check_model(head, folder / "nowhere").error();
  EXPECT_EQ(nowhere.code, Errc::invalid_argument);
  EXPECT_THAT(nowhere.message(),
              ::testing::HasSubstr("nowhere: there is no such folder; name the"));
  head.model_fingerprint = "";
  const Status imported = check_model(head, folder / "model");
  ASSERT_FALSE(imported.has_value());
  EXPECT_THAT(std::string(imported.error().message()), HasSubstr("of no model"));
}

TEST(ModelDigest, IsOfEachByteOfTheModel) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "model");
  const auto digest = [&] { return model_digest(folder / "model").value(); };
  write_bytes(folder / "model/config.json", "{}");
  std::set<std::string> seen{digest()};
  std::string weights(5'000'000, 'w');  // more than is read at once
  const auto write = [&](const char* name) { write_bytes(folder / "model" / name, weights); };
  write("model.safetensors");
  EXPECT_TRUE(seen.insert(digest()).second);
  EXPECT_EQ(digest(), digest());
  for (const std::size_t at : {std::size_t{123'457}, weights.size() - 1}) {
    weights[at] = 'v';
    write("model.safetensors");
    EXPECT_TRUE(seen.insert(digest()).second) << "byte " << at << " changed";
  }
  write("adapter.safetensors");
  EXPECT_FALSE(seen.insert(digest()).second) << "another file of the folder";
  write("model-2.safetensors");
  EXPECT_TRUE(seen.insert(digest()).second) << "another shard";
  write_bytes(folder / "model/config.json", "{ }");
  EXPECT_TRUE(seen.insert(digest()).second) << "another config";
  EXPECT_EQ(model_digest(folder / "nowhere").error().code, Errc::invalid_argument);
}

TEST(TraceFile, KnowsAModelByItsWeightsToo) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "model");
  write_bytes(folder / "model/config.json", "{}");
  const auto fingerprint = [&] { return model_fingerprint(folder / "model").value(); };
  const auto write_weights = [&](const char* name, std::string_view header,
                                 const std::string& weights) {
    const std::uint64_t length = header.size();
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    write_bytes(folder / "model" / name, bytes.append(header).append(weights));
  };
  std::set<std::string> seen{fingerprint()};
  std::string weights(1'000'000, 'w');
  write_weights("model.safetensors", "{\"a\":1}", weights);
  EXPECT_TRUE(seen.insert(fingerprint()).second) << "weights or none";
  EXPECT_EQ(fingerprint(), fingerprint());
  write_weights("model.safetensors", "{\"b\":1}", weights);
  EXPECT_TRUE(seen.insert(fingerprint()).second) << "another header";
  std::fill(weights.begin() + 500'000, weights.begin() + 510'000, 'v');
  write_weights("model.safetensors", "{\"b\":1}", weights);
  EXPECT_TRUE(seen.insert(fingerprint()).second) << "a hundredth of the weights changed";
  write_weights("model-2.safetensors", "{}", weights);
  EXPECT_TRUE(seen.insert(fingerprint()).second) << "another shard";
  std::ranges::fill(weights, 'x');
  write_weights("model-2.safetensors", "{}", weights);
  EXPECT_TRUE(seen.insert(fingerprint()).second) << "other weights in a shard";
  write_bytes(folder / "model/model-2.safetensors", "cut");
  EXPECT_TRUE(seen.insert(fingerprint()).second) << "a file shorter than its header says";
  write_weights("gates.safetensors", "{}", weights);
  EXPECT_FALSE(seen.insert(fingerprint()).second) << "a file that is none of the model's";
}

TEST(ModelFingerprint, IsWhatTheTrainerOfGatesMakesOfTheBundledModel) {
  std::ifstream file(TERRACE_TINY_MODEL "/gates.safetensors", std::ios::binary);
  const std::string gates{std::istreambuf_iterator<char>(file), {}};
  const std::string fingerprint = model_fingerprint(TERRACE_TINY_MODEL).value();
  EXPECT_NE(gates.find('"' + fingerprint + '"'), std::string::npos) << fingerprint;
}

}  // namespace
}  // namespace terrace::tuning
