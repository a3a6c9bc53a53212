#include "terrace/tuning/tuner.hpp"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <sstream>

#include "core/temporary_folder.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/offload/parallel.hpp"
#include "terrace/runtime/config.hpp"
#include "tuning/made_up_trace.hpp"

namespace terrace::tuning {
namespace {

using testing::HasSubstr;

constexpr StepCosts costs{
    .link = {.bandwidth_bytes_per_second = 1e8}, .select_seconds = 1e-5, .attend_seconds = 1e-5};

class TunerTest : public testing::Test {
 protected:
  Result<TuneResult> tune_with(TuneRequest request, std::size_t threads = 1) {
    request.trace = folder_ / "t";
    request.costs = costs;
    return tune(request, *offload::make_parallel({.threads = threads}).value());
  }

  TemporaryFolder folder_;
};

TEST_F(TunerTest, RanksChoicesByTimeAndNoneBeatsTheBound) {
  write_made_up(folder_ / "t", {.steps = 400});
  const TuneResult result = tune_with({.device_memory = 60'000}).value();
  EXPECT_GT(result.rows.size(), 40U);
  double last = 0;
  bool belady = false;
  for (const TunedRow& row : result.rows) {
    EXPECT_LE(row.optimum_ratio().value(), 1 + 1e-9) << row.cache.policy;
    belady = belady || row.cache.policy == "belady";
    if (row.offline) continue;
    EXPECT_GE(row.seconds_per_token(), last);
    last = row.seconds_per_token();
  }
  EXPECT_TRUE(belady);
  EXPECT_FALSE(result.recommended().offline);
  EXPECT_LT(result.recommended().seconds_per_token(), result.without_cache.seconds_per_token());
  EXPECT_EQ(result.without_cache.outcome.cache.rows_hit, 0U);
  EXPECT_FALSE(result.without_cache.optimum_ratio().has_value());
  EXPECT_THAT(report_page(result, {.trace = "t", .device_memory = 60'000}, "here"),
              HasSubstr("<td>0.000</td><td>0.000</td><td>-</td>"));
}

TEST_F(TunerTest, RecommendsNoCacheWhereNoneDoesBetter) {
  // No unit is wanted twice: a cache moves as much, or more, and takes memory.
  write_made_up(folder_ / "t", {.units = 100'000, .steps = 50, .stays = 0});
  constexpr std::size_t memory = 4'000'000;
  const TuneResult result = tune_with({.device_memory = memory}).value();
  EXPECT_TRUE(result.recommended().cache.none());
  EXPECT_EQ(describe(result.recommended()), "no cache");
  const Config tuned = tuned_config(result, result.recommended(), memory);
  EXPECT_EQ(tuned.text("cache.policy"), "none");
  const RuntimeOptions options = RuntimeOptions::from(tuned, result.head.shape).value();
  EXPECT_TRUE(options.cache.none());
  EXPECT_THAT(report_page(result, {.trace = "t", .device_memory = memory}, "here"),
              HasSubstr("Recommended: <b>no cache</b>"));
}

TEST_F(TunerTest, SaysThatItLeftOutWhatKnowsTheFuture) {
  write_made_up(folder_ / "t", {.steps = 20});
  const auto page = [&](const TuneResult& result) {
    return report_page(result, {.trace = "t", .device_memory = 60'000}, "here");
  };
  const auto belady = [](const TunedRow& row) { return row.offline; };
  const TuneResult all = tune_with({.device_memory = 60'000}).value();
  EXPECT_FALSE(all.offline_left_out);
  EXPECT_TRUE(std::ranges::any_of(all.rows, belady));
  EXPECT_THAT(page(all), testing::Not(HasSubstr("left out")));
  const TuneResult fewer =
      tune_with({.device_memory = 60'000, .future_selections_max = 20 * 2 * 12 - 1}).value();
  EXPECT_TRUE(fewer.offline_left_out);
  EXPECT_TRUE(std::ranges::none_of(fewer.rows, belady));
  EXPECT_THAT(page(fewer), HasSubstr("hold more than 479 selections"));
}

TEST_F(TunerTest, LeavesOutTheFutureOfUnitsThatAreTooMany) {
  write_made_up_tokens(folder_ / "t", {.unit = TraceUnit::token, .wanted = 4, .steps = 60});
  const TuneRequest request{.device_memory = 400'000, .policies = {"lru", "belady"}};
  const auto futures = [&](std::uint64_t selections_max) {
    TuneRequest limited = request;
    limited.future_selections_max = selections_max;
    const TuneResult result = tune_with(limited).value();
    std::set<std::size_t> sizes;
    for (const TunedRow& row : result.rows) {
      if (row.offline) sizes.insert(row.block_tokens);
    }
    EXPECT_EQ(result.offline_left_out, sizes.size() < 5);
    return sizes;
  };
  EXPECT_EQ(futures(50'000).size(), 5U);
  const std::set<std::size_t> fewer = futures(1'000);
  EXPECT_TRUE(fewer.contains(128)) << "of large blocks fewer are wanted";
  EXPECT_FALSE(fewer.contains(8));
}

TEST_F(TunerTest, NamesWhatIsCached) {
  write_made_up(folder_ / "t", {.steps = 20});
  const TuneRequest request{.device_memory = 60'000, .policies = {"lru"}};
  TuneResult result = tune_with(request).value();
  EXPECT_THAT(describe(result.rows.front()), HasSubstr("blocks of 8 tokens, "));
  write_made_up(folder_ / "t", {.unit = TraceUnit::cluster, .policy = "wave", .steps = 20});
  result = tune_with(request).value();
  EXPECT_THAT(describe(result.rows.front()), HasSubstr("clusters, "));
  const std::string page = report_page(result, request, "here");
  EXPECT_THAT(page, testing::Not(HasSubstr("blocks of")));
  EXPECT_THAT(page, HasSubstr("<td>cluster</td>"));
}

TEST_F(TunerTest, CountsNoChoiceThatKnowsTheFuture) {
  write_made_up(folder_ / "t", {.steps = 60});
  const auto words_of = [&](std::vector<std::string> policies) {
    const TuneRequest request{.device_memory = 60'000, .policies = std::move(policies)};
    const std::string page = report_page(tune_with(request).value(), request, "here");
    const std::size_t end = page.find(" choices have a cache that fits");
    return page.substr(end - 8, 8);
  };
  EXPECT_EQ(words_of({"lru", "belady"}), words_of({"lru"}));
}

TEST_F(TunerTest, DrawsTheBoundAndSaysWhatIsNone) {
  const TuneRequest request{.device_memory = 60'000, .policies = {"lru", "belady"}};
  const auto page = [&](const MadeUp& made) {
    write_made_up(folder_ / "t", made);
    return report_page(tune_with(request).value(), request, "here");
  };
  const std::string blocks = page({.steps = 60});
  EXPECT_THAT(blocks, HasSubstr(">bound<"));
  const std::string clusters = page({.unit = TraceUnit::cluster, .policy = "wave", .steps = 60});
  EXPECT_THAT(clusters, HasSubstr(">bound, clusters<"));
  for (const std::string& drawn : {blocks, clusters}) {
    EXPECT_THAT(drawn, HasSubstr(">belady, no bound<"));
    EXPECT_THAT(drawn, HasSubstr("belady (knows the future, counts units; no bound)<"));
  }
}

TEST_F(TunerTest, ListsEveryRowOnThePage) {
  write_made_up(folder_ / "t", {.steps = 20});
  const TuneResult result = tune_with({.device_memory = 60'000}).value();
  ASSERT_GT(result.rows.size(), 60U);
  const std::string page = report_page(result, {.trace = "t", .device_memory = 60'000}, "here");
  std::size_t listed = 0;
  for (std::size_t at = 0; (at = page.find("<tr><td>", at)) != std::string::npos; ++at) ++listed;
  // All but the recommended one, which is marked, and no cache.
  EXPECT_EQ(listed + 1, result.rows.size() + 1);
}

TEST_F(TunerTest, DrawsNothingAboveTheBound) {
  write_made_up(folder_ / "t", {.unit = TraceUnit::cluster, .policy = "wave", .steps = 200});
  const TuneResult result = tune_with({.device_memory = 60'000}).value();
  const std::string page = report_page(result, {.trace = "t", .device_memory = 60'000}, "here");
  // Points of a series, as drawn: y falls as hit rates rise.
  const auto points = [&](std::size_t series_from_behind) {
    const std::string chart = page.substr(page.find("<svg"), page.find("</svg>"));
    std::vector<std::size_t> lines;
    for (std::size_t at = 0; (at = chart.find("<polyline points=\"", at)) != std::string::npos;
         ++at) {
      lines.push_back(at + 18);
    }
    std::map<double, double> drawn;
    if (lines.size() <= series_from_behind) return drawn;
    const std::size_t begin = lines[lines.size() - 1 - series_from_behind];
    std::istringstream text(chart.substr(begin, chart.find('"', begin) - begin));
    char comma = 0;
    for (double x = 0, y = 0; text >> x >> comma >> y;) drawn[x] = y;
    return drawn;
  };
  const std::map<double, double> bound = points(0);
  ASSERT_FALSE(bound.empty());
  for (std::size_t series = 1;; ++series) {
    const std::map<double, double> drawn = points(series);
    if (drawn.empty()) break;
    for (const auto& [x, y] : drawn) {
      ASSERT_TRUE(bound.contains(x));
      EXPECT_GE(y, bound.at(x)) << series << " at " << x;
    }
  }
}

TEST(TunedRows, SayTheirParametersAndNoOthers) {
  const policies::ReplacementOptions all{.lfu_half_life = 64, .last_steps = 2};
  EXPECT_EQ(parameters_of({.policy = "none"}), "-");
  EXPECT_EQ(parameters_of({.policy = "lru", .admission = "always", .replacement = all}), "always");
  EXPECT_EQ(parameters_of({.policy = "lfu", .admission = "always", .replacement = all}),
            "always, half-life 64");
  EXPECT_EQ(parameters_of({.policy = "lfu", .admission = "always"}), "always");
  EXPECT_EQ(parameters_of({.policy = "last_steps",
                           .admission = "refill",
                           .replacement = all,
                           .refill = {.horizon_steps = 12.5}}),
            "refill, horizon 12.5, R 2");
}

TEST_F(TunerTest, SearchesBlocksClustersAndRowsOfOneTrace) {
  write_made_up_tokens(
      folder_ / "t",
      {.unit = TraceUnit::token, .policy = "wave", .wanted = 4, .steps = 60, .clusters = true});
  const TuneRequest request{.device_memory = 400'000, .policies = {"lru", "arc"}};
  const TuneResult result = tune_with(request).value();
  std::set<CacheUnit> searched;
  for (const TunedRow& row : result.rows) {
    searched.insert(row.unit());
    EXPECT_LE(row.optimum_ratio().value(), 1 + 1e-9) << describe(row);
    const Config tuned = tuned_config(result, row, request.device_memory);
    EXPECT_EQ(tuned.text("cache.granularity"), to_string(row.cache.granularity));
    EXPECT_EQ(tuned.integer("kv.block_tokens"), row.block_tokens);
    EXPECT_EQ(tuned.integer("cache.tokens"), row.cache.tokens);
  }
  std::set<CacheUnit> all{{CacheGranularity::cluster, 8}, {CacheGranularity::row, 8}};
  for (const std::size_t size : {8U, 16U, 32U, 64U, 128U}) all.insert({.block_tokens = size});
  EXPECT_EQ(searched, all);
  const std::string page = report_page(result, request, "here");
  EXPECT_THAT(page, HasSubstr("<td>cluster</td>"));
  EXPECT_THAT(page, HasSubstr("<td>row</td>"));
  EXPECT_THAT(page, HasSubstr("<td>16</td>"));
  EXPECT_THAT(page, HasSubstr(">always, clusters<"));
  EXPECT_THAT(page, HasSubstr(">always<"));
}

TEST_F(TunerTest, CountsWhatEachKindOfCacheCostsTheHost) {
  write_made_up_tokens(
      folder_ / "t",
      {.unit = TraceUnit::token, .policy = "wave", .wanted = 4, .steps = 60, .clusters = true});
  TuneRequest request{.trace = folder_ / "t",
                      .device_memory = 120'000,
                      .policies = {"lru"},
                      .costs = {.link = {.bandwidth_bytes_per_second = 1e12},
                                .upkeep = {.none = {.row_seconds = 1e-6},
                                           .blocks = {.layer_seconds = 1e-3, .unit_seconds = 1e-6},
                                           .clusters = {.layer_seconds = 2e-3},
                                           .rows = {.layer_seconds = 4e-3}}}};
  const auto threads = offload::make_parallel({.threads = 1}).value();
  const TuneResult result = tune(request, *threads).value();
  const auto seconds_of = [&](const TunedRow& row) {
    const CacheCounters& counted = row.outcome.cache;
    return request.costs.upkeep.of(row.cache).seconds(2 * row.outcome.steps,
                                                      row.rows() + counted.rows_resident,
                                                      counted.blocks_hit + counted.blocks_missed);
  };
  EXPECT_EQ(result.recommended().cache.policy, "none") << "a link as fast leaves nothing to save";
  EXPECT_NEAR(result.without_cache.outcome.seconds, seconds_of(result.without_cache), 1e-3);
  for (const TunedRow& row : result.rows) {
    if (row.offline) continue;
    EXPECT_NEAR(row.outcome.seconds, seconds_of(row), 1e-3) << describe(row);
  }
  std::swap(request.costs.upkeep.none, request.costs.upkeep.clusters);
  const TuneResult swapped = tune(request, *threads).value();
  EXPECT_EQ(swapped.recommended().cache.granularity, CacheGranularity::cluster);
}

TEST_F(TunerTest, FindsTheSameOnAnyNumberOfThreads) {
  write_made_up(folder_ / "t", {.unit = TraceUnit::cluster, .steps = 200});
  const TuneResult one = tune_with({.device_memory = 60'000}, 1).value();
  const TuneResult three = tune_with({.device_memory = 60'000}, 3).value();
  ASSERT_EQ(one.rows.size(), three.rows.size());
  for (std::size_t i = 0; i < one.rows.size(); ++i) {
    EXPECT_EQ(one.rows[i].cache.policy, three.rows[i].cache.policy);
    EXPECT_EQ(one.rows[i].outcome.cache.rows_hit, three.rows[i].outcome.cache.rows_hit);
    EXPECT_EQ(one.rows[i].outcome.seconds, three.rows[i].outcome.seconds);
  }
  TuneRequest request{.trace = folder_ / "t", .device_memory = 60'000, .costs = costs};
  EXPECT_EQ(report_page(one, request, "here"), report_page(three, request, "here"));
}

TEST_F(TunerTest, TakesTheCostsThatAreFoundFromTheTrace) {
  write_made_up(folder_ / "t", {.steps = 20});
  const auto tuned_by = [&](Result<StepCosts> found) {
    return tune_with({.device_memory = 60'000,
                      .policies = {"lru"},
                      .find_costs = [&](const TraceHead& head, const TraceEnd& end) {
                        EXPECT_EQ(head.shape.layers, 2U);
                        EXPECT_EQ(end.steps, 20U);
                        return found;
                      }});
  };
  StepCosts slower{.link = {.bandwidth_bytes_per_second = 1e9}, .attend_seconds = 1};
  const TuneResult slow = tuned_by(slower).value();
  EXPECT_EQ(slow.costs.attend_seconds, 1);
  EXPECT_GT(slow.recommended().seconds_per_token(), 2);
  const auto refused = tuned_by(fail(Errc::invalid_argument, "no run was recorded"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message(), "no run was recorded");
}

TEST_F(TunerTest, TellsHowFarItIsWithinEachPassOverTheFile) {
  // Chunks are of 256 KiB.
  write_made_up(folder_ / "t", {.steps = 12'000});
  ASSERT_GT(std::filesystem::file_size(folder_ / "t"), std::size_t{3} << 18);
  for (const std::size_t threads : {1U, 3U}) {
    std::vector<double> told;
    const TuneRequest request{.device_memory = 4'000'000,
                              .policies = {"lru"},
                              .progress = [&](double share) { told.push_back(share); }};
    const auto tuned = tune_with(request, threads);
    ASSERT_TRUE(tuned.has_value()) << tuned.error().message();
    EXPECT_TRUE(std::ranges::is_sorted(told));
    EXPECT_LT(told.front(), 0.2) << "a first pass is most of the first 0.6";
    EXPECT_NEAR(told.back(), 1, 1e-9);
  }
}

TEST_F(TunerTest, KeepsWithinTheMemoryGiven) {
  write_made_up(folder_ / "t", {});
  for (const std::size_t memory : {30'000U, 40'000U, 200'000U}) {
    const auto result = tune_with({.device_memory = memory, .policies = {"lru"}});
    ASSERT_TRUE(result.has_value()) << memory;
    ASSERT_FALSE(result->rows.empty()) << memory;
    for (const TunedRow& row : result->rows) {
      EXPECT_GT(row.cache.tokens, 0U) << memory;
      EXPECT_LE(result->fixed_bytes + row.cache.tokens * 2 * result->head.shape.token_bytes(),
                memory);
    }
  }
  const auto none = tune_with({.device_memory = 100});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(none.error().message()), HasSubstr("give at least"));
}

TEST_F(TunerTest, LeavesRoomForAllSequencesThatShareACache) {
  const auto fixed_bytes = [&](std::size_t sharers) {
    auto writer = TraceWriter::create(folder_ / "t", made_up_head({})).value();
    writer.append({.kind = TraceRecord::Kind::share, .sharers = sharers});
    for (int step = 0; step < 9; ++step) {
      writer.append({.position = 100, .units = {{.unit = 3, .rows = 5}}});
      writer.append({.kind = TraceRecord::Kind::step_end});
    }
    EXPECT_TRUE(writer.finish(std::nullopt).has_value());
    return tune_with({.device_memory = 60'000, .policies = {"lru"}}).value().fixed_bytes;
  };
  EXPECT_EQ(fixed_bytes(3), 3 * fixed_bytes(1));
}

TEST_F(TunerTest, RecommendsNoLargerCacheThanAConfigCanSay) {
  auto writer =
      TraceWriter::create(folder_ / "t", made_up_head({.unit = TraceUnit::cluster, .layers = 1}))
          .value();
  // As many positions as requests bring that have little in common.
  TraceRecord record{.position = std::uint64_t{1} << 40,
                     .units = {{.unit = 1, .rows = 16, .size_rows = 16}}};
  for (int step = 0; step < 9; ++step) {
    writer.append(record);
    writer.append({.kind = TraceRecord::Kind::step_end});
  }
  ASSERT_TRUE(writer.finish(std::nullopt).has_value());
  constexpr std::size_t memory = std::size_t{1} << 50;
  const TuneResult result = tune_with({.device_memory = memory, .policies = {"lru"}}).value();
  for (const TunedRow& row : result.rows) {
    EXPECT_EQ(tuned_config(result, row, memory).integer("cache.tokens"), row.cache.tokens);
  }
}

TEST_F(TunerTest, IsContentWithWhatItAskedFor) {
  for (const std::size_t layers : {1U, 2U, 7U, 11U, 13U, 1001U}) {
    write_made_up(folder_ / "t", {.layers = layers, .steps = 1});
    const auto refused = tune_with({.device_memory = 1, .policies = {"lru"}});
    ASSERT_FALSE(refused.has_value());
    const std::string message(refused.error().message());
    const std::string asked = message.substr(message.find("give at least ") + 14);
    const std::size_t memory = parse_size(asked).value();
    EXPECT_TRUE(tune_with({.device_memory = memory, .policies = {"lru"}}).has_value()) << asked;
  }
}

TEST_F(TunerTest, RefusesWhatItCannotSearch) {
  write_made_up(folder_ / "t", {.steps = 5});
  EXPECT_THAT(
      std::string(tune_with({.device_memory = 1 << 20, .policies = {"lruu"}}).error().message()),
      HasSubstr("did you mean lru?"));
  EXPECT_THAT(
      std::string(tune_with({.device_memory = 1 << 20, .policies = {"belady"}}).error().message()),
      HasSubstr("nothing to search"));
  write_made_up(folder_ / "t", {.steps = 0});
  EXPECT_THAT(std::string(tune_with({.device_memory = 1 << 20}).error().message()),
              HasSubstr("no selection"));
}

TEST_F(TunerTest, WritesAConfigThatReadsBackAndAPageThatNeedsNoNetwork) {
  write_made_up(folder_ / "t", {});
  const TuneResult result = tune_with({.device_memory = 60'000}).value();
  const Config tuned = tuned_config(result, result.recommended(), 60'000);
  Config read;
  ASSERT_TRUE(apply_config_text(read, write_config(tuned), "tuned").has_value());
  EXPECT_EQ(read.text("cache.policy"), result.recommended().cache.policy);
  EXPECT_EQ(read.integer("cache.tokens"), result.recommended().cache.tokens);
  EXPECT_EQ(read.size_bytes("device.memory"), 60'000U);
  const std::string page =
      report_page(result, {.trace = "<trace>", .device_memory = 60'000}, "a & b");
  EXPECT_THAT(page, HasSubstr("&lt;trace&gt;"));
  EXPECT_THAT(page, testing::Not(HasSubstr("<script")));
  EXPECT_THAT(page, testing::Not(HasSubstr("src=")));
  EXPECT_THAT(page, HasSubstr("<svg"));
}

}  // namespace
}  // namespace terrace::tuning
