// Rows as programs and people read them.
#include "harness/row.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace terrace::bench {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Row sample(Better better) {
  return {.name = "read",
          .parameters = {{"threads", 1}},
          .value = 2e9,
          .unit = "B/s",
          .better = better,
          .samples = 5,
          .spread = 0.1,
          .peer = PeerFigure{"memcpy", "2.36", 1e9}};
}

TEST(Row, TheRatioIsAboveOneWhereOursIsBetter) {
  EXPECT_EQ(sample(Better::higher).ratio(), 2.0);
  EXPECT_EQ(sample(Better::lower).ratio(), 0.5);
  Row alone = sample(Better::higher);
  alone.peer.reset();
  EXPECT_FALSE(alone.ratio().has_value());
}

TEST(Row, HasTheFieldsProgramsRead) {
  const Json json = to_json(sample(Better::higher));
  EXPECT_EQ(json["name"], "read");
  EXPECT_EQ(json["parameters"]["threads"], 1);
  EXPECT_EQ(json["value"], 2e9);
  EXPECT_EQ(json["unit"], "B/s");
  EXPECT_EQ(json["better"], "higher");
  EXPECT_EQ(json["samples"], 5);
  EXPECT_EQ(json["spread"], 0.1);
  EXPECT_EQ(json["peer"]["version"], "2.36");
  EXPECT_EQ(json["ratio"], 2.0);
  EXPECT_FALSE(json.contains("reason"));
}

TEST(Row, WithoutAValueItSaysWhy) {
  const Row row{.name = "copy", .reason = "no device here", .unit = "B/s"};
  EXPECT_TRUE(to_json(row)["value"].is_null());
  EXPECT_EQ(to_json(row)["reason"], "no device here");
  EXPECT_EQ(table({{row}}), "not measured: copy: no device here\n");
}

TEST(Row, ThoseWithoutAValueForOneReasonShareALine) {
  const Row first{.name = "copy", .reason = "no device here", .unit = "B/s"};
  const Row second{.name = "copy_back", .reason = "no device here", .unit = "B/s"};
  const Row other{.name = "read", .reason = "no file", .unit = "B/s"};
  const std::string text = table({{first, sample(Better::higher), other, second}});
  EXPECT_THAT(text, EndsWith("not measured: copy and 1 more: no device here\n"
                             "not measured: read: no file\n"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 4);
}

TEST(Row, TheTableSaysThatAFigureIsQuick) {
  Row row = sample(Better::higher);
  row.parameters["quick"] = true;
  EXPECT_THAT(table({{row}}), HasSubstr(row.name + " (quick) "));
}

TEST(Row, TheTableHasPrefixesPeopleRead) {
  const std::string text = table({{sample(Better::higher)}});
  EXPECT_THAT(text, StartsWith("row          value spread  better  peer\nread"));
  EXPECT_THAT(text, HasSubstr("2 GB/s"));
  EXPECT_THAT(text, HasSubstr("2.00x"));
  EXPECT_THAT(text, HasSubstr("memcpy 2.36: 1 GB/s"));
}

}  // namespace
}  // namespace terrace::bench
