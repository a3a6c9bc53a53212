#include "terrace/tuning/convert.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/temporary_folder.hpp"
#include "terrace/tuning/costs.hpp"
#include "terrace/tuning/layer_traffic.hpp"
#include "terrace/tuning/replay.hpp"
#include "tuning/made_up_trace.hpp"

namespace terrace::tuning {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Two steps of one layer, two heads: positions in blocks of 4.
void write_tokens(const std::filesystem::path& path) {
  TraceHead head = made_up_head({.unit = TraceUnit::token, .layers = 1});
  head.block_tokens = 4;
  auto writer = TraceWriter::create(path, head).value();
  TraceRecord record;
  record.position = 40;
  record.sinks_end = 4;
  record.window_begin = 32;
  record.head_counts = {3, 2};
  record.positions = {4, 5, 9, 5, 31};
  writer.append(record);
  record.head_counts = {1, 1};
  record.positions = {8, 30};
  writer.append(record);
  ASSERT_TRUE(writer.finish(std::nullopt).has_value());
}

TEST(Convert, WritesBlocksAndTheirRows) {
  const TemporaryFolder folder;
  write_tokens(folder / "t");
  ASSERT_TRUE(convert_to_csv({folder / "t", folder / "csv"}, {.block_tokens = 4}).has_value());
  EXPECT_EQ(read_text(folder / "csv"),
            "key,sequence,layer,step,unit,rows,slots\n"
            "s0.l0.u1,0,0,0,1,3,1\ns0.l0.u2,0,0,0,2,1,1\ns0.l0.u7,0,0,0,7,1,1\ns0.l0.u2,0,0,1,2,1,"
            "1\ns0.l0.u7,0,0,1,7,1,1\n");
  ASSERT_TRUE(convert_to_blocks({folder / "t", folder / "blocks"}, 8).has_value());
  ASSERT_TRUE(convert_to_csv({folder / "blocks", folder / "csv"}, {.block_tokens = 8}).has_value());
  EXPECT_EQ(read_text(folder / "csv"),
            "key,sequence,layer,step,unit,rows,slots\ns0.l0.u1,0,0,0,1,1,1\ns0.l0.u3,0,0,0,3,1,"
            "1\ns0.l0.u1,0,0,1,1,1,1\ns0.l0.u3,0,0,1,3,1,1"
            "\n")
      << "block 0 holds sinks";
}

TEST(Convert, GivesRenamedUnitsNumbersOfTheirOwn) {
  const TemporaryFolder folder;
  auto writer =
      TraceWriter::create(folder / "t", made_up_head({.unit = TraceUnit::cluster})).value();
  TraceRecord record{.position = 9, .units = {{.unit = 4, .rows = 1, .size_rows = 2}}};
  for (const bool renamed : {true, false, true}) {
    record.renamed = renamed;
    writer.append(record);
  }
  ASSERT_TRUE(writer.finish(std::nullopt).has_value());
  ASSERT_TRUE(convert_to_csv({folder / "t", folder / "csv"}, {.block_tokens = 8}).has_value());
  EXPECT_EQ(read_text(folder / "csv"),
            "key,sequence,layer,step,unit,rows,slots\ns0.l0.u4,0,0,0,4,1,1\ns0.l0.u4,0,0,1,4,1,"
            "1\ns0.l0.u9,0,0,2,9,1,1\n");
}

TEST(Convert, MakesBlocksOfTokensThatHaveClustersBesides) {
  const TemporaryFolder folder;
  write_made_up_tokens(folder / "t", {.unit = TraceUnit::token, .steps = 20, .clusters = true});
  ASSERT_TRUE(convert_to_blocks({folder / "t", folder / "blocks"}, 8).has_value());
  for (const char* const trace : {"t", "blocks"}) {
    ASSERT_TRUE(convert_to_csv({folder / trace, folder / (std::string(trace) + ".csv")},
                               {.block_tokens = 8})
                    .has_value());
  }
  EXPECT_EQ(read_text(folder / "blocks.csv"), read_text(folder / "t.csv"));
  const CacheUnit clusters{CacheGranularity::cluster, 8};
  ASSERT_TRUE(convert_to_csv({folder / "t", folder / "csv"}, clusters).has_value());
  EXPECT_NE(read_text(folder / "csv"), read_text(folder / "t.csv"));
  const Status none = convert_to_csv({folder / "blocks", folder / "csv"}, clusters);
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(std::string(none.error().message()), ::testing::HasSubstr("no clusters to cache"));
}

TEST(Convert, RecountsARunThatCachedOtherUnits) {
  const TemporaryFolder folder;
  write_made_up_tokens(folder / "t", {.unit = TraceUnit::token, .steps = 20, .clusters = true});
  auto reader = TraceReader::open(folder / "t").value();
  TraceHead head = reader.head();
  head.cache = {.admission = "always", .granularity = CacheGranularity::cluster, .tokens = 64};
  head.staged_rows = 10;
  auto writer = TraceWriter::create(folder / "run", head).value();
  ASSERT_TRUE(reader.for_each([&](const TraceRecord& record) { writer.append(record); }));
  const RecordedRun run{.cache = {.rows_hit = 1, .rows_missed = 2, .blocks_missed = 3},
                        .bytes = {.offload = 4, .demand = 5},
                        .decode_seconds = 1,
                        .upkeep_seconds = 0.25,
                        .fixed_device_bytes = 1'000'000};
  writer.add_losses(3);
  ASSERT_TRUE(writer.finish(run).has_value());
  ASSERT_TRUE(convert_to_blocks({folder / "run", folder / "blocks"}, 16).has_value());

  auto blocks = TraceReader::open(folder / "blocks").value();
  auto replay = CacheReplay::create(blocks.head(), {.cache = blocks.head().cache}).value();
  auto cutter = TrafficCutter::create(blocks.head(), blocks.head().recorded()).value();
  ASSERT_TRUE(blocks.for_each(
      [&](const TraceRecord& record) { replay.apply(record, cutter.cut(record)); }));
  EXPECT_EQ(blocks.end().losses, 3U);
  const RecordedRun& told = blocks.end().run.value();
  EXPECT_EQ(told.cache.rows_hit, replay.outcome().cache.rows_hit);
  EXPECT_EQ(told.cache.blocks_missed, replay.outcome().cache.blocks_missed);
  EXPECT_EQ(told.bytes.demand, replay.outcome().bytes.demand);
  EXPECT_EQ(told.bytes.offload, run.bytes.offload);
  EXPECT_GT(told.cache.rows_hit, 0U);
  // Layers share what rows are staged in, and number no rows.
  const std::size_t staging = 10 * head.shape.row_bytes();
  const std::size_t tables = 2 * (blocks.end().last_position + 1) * 2 * sizeof(std::uint32_t);
  EXPECT_EQ(told.fixed_device_bytes, run.fixed_device_bytes - staging - tables);
  const StepCosts before = recorded_costs(head, check_trace(folder / "run").value(), {}).value();
  const StepCosts after = recorded_costs(blocks.head(), blocks.end(), {}).value();
  EXPECT_NEAR(after.attend_seconds, before.attend_seconds, 1e-9);
  EXPECT_NEAR(after.upkeep.blocks.unit_seconds, before.upkeep.blocks.unit_seconds, 1e-12);
}

TEST(Convert, MakesBlocksOfTokensOnly) {
  const TemporaryFolder folder;
  for (const TraceUnit unit : {TraceUnit::block, TraceUnit::cluster}) {
    write_made_up(folder / "t", {.unit = unit, .steps = 3});
    const Status made = convert_to_blocks({folder / "t", folder / "blocks"}, 8);
    ASSERT_FALSE(made.has_value()) << to_string(unit);
    EXPECT_EQ(made.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(made.error().message()), ::testing::HasSubstr("no tokens"));
    EXPECT_FALSE(std::filesystem::exists(folder / "blocks"));
    EXPECT_TRUE(convert_to_csv({folder / "t", folder / "csv"}, {.block_tokens = 8}).has_value());
  }
}

TEST(Convert, TellsHowFarItIs) {
  const TemporaryFolder folder;
  std::vector<double> shares;
  const auto expect_shares = [&](const char* source, const auto& convert) {
    shares.clear();
    const Status converted = convert(
        Conversion{folder / source, folder / "out", [&](double now) { shares.push_back(now); }});
    ASSERT_TRUE(converted.has_value()) << converted.error().message();
    ASSERT_GT(shares.size(), 1U);
    EXPECT_TRUE(std::ranges::is_sorted(shares));
    EXPECT_GT(shares.front(), 0);
    EXPECT_GT(shares.back(), 0.5) << "all but the end is read";
    EXPECT_LE(shares.back(), 1);
  };
  write_made_up_tokens(folder / "t", {.unit = TraceUnit::token, .steps = 20});
  expect_shares("t", [](const auto& files) { return convert_to_blocks(files, 8); });
  expect_shares("t", [](const auto& files) { return convert_to_csv(files, {.block_tokens = 8}); });
}

}  // namespace
}  // namespace terrace::tuning
