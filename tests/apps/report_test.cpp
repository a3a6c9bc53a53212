#include "run/report.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "run/table.hpp"

namespace terrace::apps {
namespace {

using testing::HasSubstr;

/// A policy with the widest figures that its columns may have to hold.
PolicyFigures wide_figures() {
  PolicyFigures figures{.policy = "pqcache"};
  figures.bits_per_token = 12.3456;
  figures.bits_delta = MeanWithError{.mean = -10.98765, .standard_error = 0.54321};
  figures.recall = 0.98765;
  figures.attention_mass = 0.99999;
  figures.cache = CacheFigures{.hit_rate_tokens = 1.0};
  figures.bytes_per_token = {.offload = 1e9, .demand = 1.04e6, .refill = 9.9e8, .index = 1.7e12};
  figures.seconds = {.prefill = 1234.567, .decode_per_token = 1.234567, .attend = 1.1};
  figures.device_peak_bytes = std::size_t{1023} << 30;
  return figures;
}

/// Columns of a terminal: bytes that do not continue a UTF-8 sequence.
std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::ranges::count_if(
      line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

TEST(FiguresTable, IsAlignedAndFitsATerminal) {
  const std::array figures{wide_figures(), PolicyFigures{.policy = "full"}};
  std::istringstream table(figures_table(figures, /*bytes=*/true));
  std::vector<std::size_t> widths;
  for (std::string line; std::getline(table, line);) widths.push_back(columns(line));
  ASSERT_EQ(widths.size(), 4U);
  for (const std::size_t width : widths) {
    EXPECT_EQ(width, widths.front());
    EXPECT_LE(width, 110U);
  }
}

TEST(FiguresTable, ShowsWhatDoesNotApplyAsADash) {
  const std::array figures{PolicyFigures{.policy = "full"}};
  EXPECT_THAT(figures_table(figures, true), HasSubstr(" - "));
}

TEST(RunObject, SaysNullWhereAFigureDoesNotApply) {
  const Json run = run_object({.policy = "full"});
  for (const char* const field : {"bits_per_token", "bits_per_byte", "top1_agreement", "recall",
                                  "mass_bounds", "needles", "cache"}) {
    ASSERT_TRUE(run.contains(field)) << field;
    EXPECT_TRUE(run[field].is_null()) << field;
  }
  EXPECT_TRUE(run["clustering"]["hidden_ratio"].is_null());
}

TEST(RunObject, CountsNeedles) {
  PolicyFigures figures{.needles = {{.depth = 0.25, .digits = 4, .right = 4},
                                    {.depth = 0.75, .digits = 6, .right = 1}}};
  const Json needles = run_object(figures)["needles"];
  EXPECT_EQ(needles["asked"], 2);
  EXPECT_DOUBLE_EQ(needles["digits_right_ratio"].get<double>(), 0.5);
  EXPECT_EQ(needles["by_depth"][1]["right"], 1);
  EXPECT_EQ(needles["asked_at"], "after");
  EXPECT_TRUE(needles["form"].is_null()) << "a file has its own wording";
}

TEST(RunObject, SaysHowNeedlesWereAskedForAndWorded) {
  const PolicyFigures figures{.needles = {{.depth = 0.5, .digits = 4, .right = 4}},
                              .needles_asked = AskedAt::prompt,
                              .needles_form = "plain"};
  const Json needles = run_object(figures)["needles"];
  EXPECT_EQ(needles["asked_at"], "prompt");
  EXPECT_EQ(needles["form"], "plain");
}

TEST(TurnsList, HasWhatWasGeneratedWhereAnythingWas) {
  const std::array turns{TurnFigures{.prompt_tokens = 3, .bits_per_token = 1.5},
                         TurnFigures{.generated = {{TokenId{'o'}, TokenId{0}}, true}}};
  const Json list = turns_list(turns, /*bytes=*/true);
  EXPECT_EQ(list[0]["prompt_tokens"], 3);
  EXPECT_EQ(list[0]["bits_per_token"], 1.5);
  EXPECT_FALSE(list[0].contains("generated"));
  EXPECT_TRUE(list[1]["bits_per_token"].is_null());
  EXPECT_EQ(list[1]["generated"]["text"], "o");
  EXPECT_EQ(list[1]["generated"]["ended"], true);
}

TEST(Document, BeginsWithWhatMadeIt) {
  const Json head = document_head("run", Config{}, {.cpu = "a", .isa = "b"});
  std::vector<std::string> keys;
  for (const auto& item : head.items()) keys.push_back(item.key());
  EXPECT_THAT(keys,
              testing::ElementsAre("terrace", "command", "build", "machine", "config", "seed"));
  EXPECT_EQ(head["machine"]["link"], "memcpy");
  EXPECT_TRUE(head["machine"]["gpu"].is_null());
  EXPECT_EQ(head["config"]["cache.policy"], "lru");
  EXPECT_EQ(head["config"]["threads.host"], 1);
}

TEST(Document, NamesTheDeviceInUse) {
  const Json head = document_head("run", Config{}, {.gpu = "NVIDIA H100"});
  EXPECT_EQ(head["machine"]["gpu"], "NVIDIA H100");
}

TEST(Spelling, OfGeneratedTokensIsTextOrIds) {
  const std::vector tokens{TokenId{'o'}, TokenId{'k'}};
  EXPECT_EQ(spell(tokens, /*bytes=*/true), "ok");
  EXPECT_EQ(spell(tokens, /*bytes=*/false), "111 107");
}

}  // namespace
}  // namespace terrace::apps
