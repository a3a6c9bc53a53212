// Traces that no run could have written, though their checksums are right.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <xxhash.h>

#include <cstring>

#include "core/temporary_folder.hpp"
#include "tuning/trace_bytes.hpp"

namespace terrace::tuning {
namespace {

using testing::HasSubstr;

/// Replaces words of the head or the end, and makes its checksum right again.
std::string with_words(std::string bytes, const std::string& from, const std::string& to) {
  constexpr std::size_t hashed = 16;
  constexpr std::size_t header = 24;
  for (std::size_t chunk = 8; chunk < bytes.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, &bytes[chunk + 4], sizeof size);
    const std::size_t found = bytes.substr(chunk + header, size).find(from);
    if (found != std::string::npos) {
      bytes.replace(chunk + header + found, from.size(), to);
      size += static_cast<std::uint32_t>(to.size()) - static_cast<std::uint32_t>(from.size());
      std::memcpy(&bytes[chunk + 4], &size, sizeof size);
      const std::uint64_t hash =
          XXH64(&bytes[chunk + header], size, XXH64(&bytes[chunk], hashed, 0));
      std::memcpy(&bytes[chunk + hashed], &hash, sizeof hash);
      return bytes;
    }
    chunk += header + size;
  }
  ADD_FAILURE() << from << " is nowhere";
  return bytes;
}

TEST(ForeignTrace, RefusesImpossibleCounts) {
  const TemporaryFolder folder;
  auto writer = TraceWriter::create(folder / "t", token_head()).value();
  writer.append({.kind = TraceRecord::Kind::step_end});
  ASSERT_TRUE(writer.finish(RecordedRun{.decode_seconds = 0.5, .link_seconds = 0.25}).has_value());
  const std::string bytes = read_bytes(folder / "t");
  const auto error_of = [&](const char* from, const char* to) {
    write_bytes(folder / "altered", with_words(bytes, from, to));
    const auto read = check_trace(folder / "altered");
    if (read) return std::string("none");
    EXPECT_EQ(read.error().code, Errc::corrupt);
    return std::string(read.error().message());
  };
  EXPECT_EQ(error_of("\"layers\":2", "\"layers\":3"), "none");
  for (const char* const count : {"-1", "99999999999", "1.5", "\"2\""}) {
    for (const char* const name : {"layers", "kv_heads", "query_heads"}) {
      EXPECT_THAT(error_of(fmt::format("\"{}\":2", name).c_str(),
                           fmt::format("\"{}\":{}", name, count).c_str()),
                  HasSubstr(fmt::format("{} is no whole number from 0 to 4096", name)));
    }
  }
  EXPECT_THAT(error_of("\"staged_rows\":77", "\"staged_rows\":-77"), HasSubstr("staged_rows"));
  EXPECT_THAT(error_of("\"sequences\":1", "\"sequences\":-1"), HasSubstr("sequences"));
  EXPECT_THAT(error_of("\"link_seconds\":0.25", "\"link_seconds\":-0.25"),
              HasSubstr("link_seconds is negative"));
}

TEST(ForeignTrace, RefusesFlawsThatItsJsonParserOverlooks) {
  const TemporaryFolder folder;
  auto writer = TraceWriter::create(folder / "t", token_head()).value();
  ASSERT_TRUE(writer.finish(std::nullopt).has_value());
  const std::string bytes = read_bytes(folder / "t");
  using namespace std::string_literals;
  for (const auto& [from, to] :
       {std::pair(R"("seed":18446744073709551615})"s, "\"seed\":1}\0more"s),
        std::pair(R"({"unit")"s, "\xef\xbb\xbf{\"unit\""s), std::pair("null}"s, "null}\0"s)}) {
    write_bytes(folder / "altered", with_words(bytes, from, to));
    const auto read = check_trace(folder / "altered");
    ASSERT_FALSE(read.has_value()) << to;
    EXPECT_EQ(read.error().code, Errc::corrupt);
    EXPECT_THAT(std::string(read.error().message()), HasSubstr("of the trace is no JSON: "));
  }
}

TEST(ForeignTrace, RefusesAnEndThatCountsOtherRecords) {
  const TemporaryFolder folder;
  for (const TraceUnit unit : {TraceUnit::token, TraceUnit::block, TraceUnit::cluster}) {
    const MadeUp made{.unit = unit, .wanted = 3, .steps = 4};
    if (unit == TraceUnit::token) {
      write_made_up_tokens(folder / "t", made);
    } else {
      write_made_up(folder / "t", made);
    }
    const std::string bytes = read_bytes(folder / "t");
    const TraceEnd end = check_trace(folder / "t").value();
    const auto expect_refused = [&](const char* name, std::uint64_t count) {
      write_bytes(folder / "altered", with_words(bytes, fmt::format("\"{}\":{}", name, count),
                                                 fmt::format("\"{}\":{}", name, count + 1)));
      const auto read = check_trace(folder / "altered");
      ASSERT_FALSE(read.has_value()) << name;
      EXPECT_EQ(read.error().code, Errc::corrupt);
      EXPECT_THAT(std::string(read.error().message()), HasSubstr("counts other records"));
    };
    expect_refused("layer_steps", end.layer_steps);
    expect_refused("steps", end.steps);
    expect_refused("selections", end.selections);
    expect_refused("rows", end.rows);
    expect_refused("last_position", end.last_position);
    expect_refused("sequences", end.sequences);
  }
}

TEST(ForeignTrace, RefusesAHeadThatNoConfigCouldSay) {
  const TemporaryFolder folder;
  const auto error_of = [&](const auto& alter) {
    TraceHead head = token_head();
    alter(head);
    auto writer = TraceWriter::create(folder / "t", head).value();
    EXPECT_TRUE(writer.finish(std::nullopt).has_value());
    const auto opened = TraceReader::open(folder / "t");
    return opened ? std::string("none") : std::string(opened.error().message());
  };
  EXPECT_EQ(error_of([](TraceHead&) {}), "none");
  EXPECT_THAT(error_of([](TraceHead& head) { head.budget = "a tenth"; }),
              HasSubstr("retrieval.budget"));
  EXPECT_THAT(error_of([](TraceHead& head) { head.block_tokens = 70'000; }),
              HasSubstr("kv.block_tokens"));
  EXPECT_THAT(error_of([](TraceHead& head) { head.block_tokens = 0; }),
              HasSubstr("kv.block_tokens"));
  EXPECT_THAT(error_of([](TraceHead& head) {
                head.unit = TraceUnit::cluster;
                head.slot_rows = SIZE_MAX;
              }),
              HasSubstr("slot_rows"));
  EXPECT_THAT(error_of([](TraceHead& head) {
                head.unit = TraceUnit::cluster;
                head.slot_rows = 0;
              }),
              HasSubstr("slot_rows"));
  EXPECT_THAT(error_of([](TraceHead& head) { head.unit = TraceUnit::block; }),
              HasSubstr("slot_rows 16: blocks are no clusters"));
  EXPECT_THAT(error_of([](TraceHead& head) { head.slot_rows = 0; }),
              HasSubstr("a cache of clusters"));
  const auto with_setting = [&](const char* key, const char* text) {
    return error_of([&](TraceHead& head) { head.settings = {{key, text}}; });
  };
  EXPECT_EQ(with_setting("wave.estimate", "centroid"), "none");
  EXPECT_THAT(with_setting("wave.estimate", "guess"), HasSubstr("wave.estimate"));
  for (const char* const key : {"cache.policy", "device.memory", "profile", "isa", "x\x1b[2J"}) {
    EXPECT_THAT(with_setting(key, "auto"), testing::AllOf(HasSubstr("is no key that a trace has"),
                                                          testing::Not(HasSubstr("\x1b"))));
  }
  EXPECT_EQ(error_of([](TraceHead& head) {
              head.policy = {};
              head.budget = {};
            }),
            "none")
      << "what was converted has none";
}

/// Layers of sequences that name a unit each: well-formed, and of a few bytes.
Status write_units(const std::filesystem::path& path, std::size_t sequences, bool closes) {
  TraceHead head = made_up_head({});
  head.shape.layers = 8;
  auto writer = TraceWriter::create(path, head).value();
  for (std::size_t sequence = 0; sequence < sequences; ++sequence) {
    for (std::size_t layer = 0; layer < head.shape.layers; ++layer) {
      writer.append({.sequence = sequence,
                     .layer = layer,
                     .position = 100,
                     .units = {{.unit = (1 << 17) - 1, .rows = 1}}});
    }
    if (closes) writer.append({.kind = TraceRecord::Kind::close, .sequence = sequence});
  }
  return writer.finish(std::nullopt);
}

TEST(ForeignTrace, RefusesMillionsOfUnitsThatNothingWants) {
  const TemporaryFolder folder;
  const Status written = write_units(folder / "t", 10, /*closes=*/false);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, Errc::unsupported);
  EXPECT_THAT(std::string(written.error().message()),
              testing::AllOf(HasSubstr("have 9569536"), HasSubstr("almost no record wants them")));
  EXPECT_TRUE(write_units(folder / "t", 10, /*closes=*/true));
  EXPECT_TRUE(check_trace(folder / "t"));
  ASSERT_TRUE(write_units(folder / "t", 8, /*closes=*/false));
  EXPECT_TRUE(check_trace(folder / "t"));
}

TEST(ForeignTrace, TakesMoreUnitsWhereTheyAreWantedButNotEndlesslyMany) {
  TraceHead head = made_up_head({});
  head.shape.layers = 4096;
  OpenUnits units(head);
  TraceRecord record{.position = 100};
  // One in sixteen is wanted, as in a step of a small budget.
  for (UnitKey unit = 0; unit < 1024; ++unit) record.units.push_back({.unit = 16 * unit});
  const auto select = [&](std::size_t layers) {
    for (std::size_t i = 0; i < layers; ++i) {
      units.add(record);
      ++record.layer;
    }
  };
  select(4096);
  EXPECT_GT(units.count(), 7 * free_units);
  EXPECT_FALSE(units.are_too_many());
  record.sequence = 1;
  record.layer = 0;
  select(4000);
  EXPECT_FALSE(units.are_too_many());
  select(96);
  EXPECT_GT(units.count(), open_units_max);
  EXPECT_TRUE(units.are_too_many());
}

TEST(ForeignTrace, CountsTheLayersOfSequencesThatDoNothing) {
  TraceHead head = made_up_head({});
  head.shape.layers = 4096;
  OpenUnits units(head);
  constexpr std::size_t sequences = free_units / 4096 / layer_units;
  for (std::size_t sequence = 0; sequence <= sequences; ++sequence) {
    units.add({.kind = TraceRecord::Kind::step_end, .sequence = sequence});
  }
  EXPECT_TRUE(units.are_too_many());
  for (std::size_t sequence = 0; sequence <= sequences; ++sequence) {
    units.add({.kind = TraceRecord::Kind::close, .sequence = sequence});
  }
  EXPECT_EQ(units.count(), 0U);
}

}  // namespace
}  // namespace terrace::tuning
