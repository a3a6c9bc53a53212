// Files of outlier heads: what is written is read, and what is wrong is refused by name.
#include "outlier_file.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace terrace::apps {
namespace {

using policies::HeadShares;
using policies::KvHead;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr KvShape shape{.layers = 2, .query_heads = 4, .kv_heads = 4, .head_dim = 8};

KvHead head_at(std::uint32_t layer, std::uint32_t head) { return {LayerId{layer}, HeadId{head}}; }

class OutlierFile : public ::testing::Test {
 protected:
  OutlierFile() {
    for (std::uint32_t i = 0; i < 8; ++i) shares_.heads.push_back({head_at(i / 4, i % 4), 0.125});
    shares_.heads[6].share = 0.5;
    shares_.heads[1].share = 0.25;
    shares_.threshold = 0.75;
  }
  ~OutlierFile() override { std::filesystem::remove(path_); }

  Result<SharedOutliers> read(const std::string& content) {
    std::ofstream(path_) << content;
    return read_named(path_.string());
  }
  Result<SharedOutliers> read_named(const std::string& path) {
    Config config;
    EXPECT_TRUE(config.set("retention.outlier_heads", path, {}).has_value());
    return read_outlier_heads(config, shape);
  }
  /// The message of reading a good file in which `from` is `to`.
  std::string message(const std::string& from, const std::string& to) {
    std::string content = outlier_file(shares_, shape, 0.25);
    const std::size_t at = content.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    const auto outliers = read(content.replace(at, from.size(), to));
    EXPECT_FALSE(outliers.has_value()) << content;
    const std::string said(outliers.error().message());
    EXPECT_THAT(said, HasSubstr("retention.outlier_heads: " + path_.string() + ": "));
    EXPECT_EQ(said.find('\n'), std::string::npos);
    EXPECT_EQ(outliers.error().code, Errc::invalid_argument);
    return said;
  }

  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string("outliers_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() +
       ".json");
  HeadShares shares_;
};

TEST_F(OutlierFile, NamesTheHeadsThatWereWritten) {
  const auto outliers = read(outlier_file(shares_, shape, 0.25));
  ASSERT_TRUE(outliers.has_value()) << outliers.error().message();
  EXPECT_THAT((*outliers)->heads(), ElementsAre(head_at(0, 1), head_at(1, 2)));
}

TEST_F(OutlierFile, IsNoneWhereNoneIsNamed) { EXPECT_EQ(read_named("").value(), nullptr); }

TEST_F(OutlierFile, IsRefusedWhereItIsNotThere) {
  EXPECT_THAT(std::string(read_named("/nowhere/heads.json").error().message()),
              AllOf(HasSubstr("retention.outlier_heads: "), HasSubstr("/nowhere/heads.json")));
}

TEST_F(OutlierFile, IsRefusedByNameWhereItIsWrong) {
  EXPECT_THAT(message("heads 1", "heads 2"), HasSubstr("names no outlier heads that terrace"));
  EXPECT_THAT(message("\"layers\": 2", "\"layers\": 3"),
              HasSubstr("is of a model with 3 layers of 4 KV heads, this one has 2 of 4"));
  EXPECT_THAT(message("\"kv_heads\": 4", "\"kv_heads\": 8"), HasSubstr("2 layers of 8 KV heads"));
  EXPECT_THAT(message("\"kv_heads\": 4", "\"kv_heads\": -4"), HasSubstr("whole number kv_heads"));
  EXPECT_THAT(message("\"head\": 2", "\"head\": 4"),
              HasSubstr("outlier head 4 of layer 1: the model has 2 layers of 4 KV heads"));
  EXPECT_THAT(message("\"layer\": 1", "\"layer\": 4294967297"),
              HasSubstr("heads[1]: has no whole number layer"));
  EXPECT_THAT(message("\"layer\": 1", "\"layer\": 0.5"), HasSubstr("no whole number layer"));
  EXPECT_THAT(message("0.25", "NaN"), HasSubstr("is no JSON, from byte"));
  EXPECT_THAT(message("0.25", "null"), HasSubstr("heads[0]: has no share from 0 to 1"));
  EXPECT_THAT(message("0.25", "1.5"), HasSubstr("has no share from 0 to 1"));
  EXPECT_THAT(message("\"heads\"", "\"heds\""), HasSubstr("has no list of heads"));
}

TEST_F(OutlierFile, IsRefusedWhereItIsNoObject) {
  for (const char* content : {"", "[]", "3", "{", "{\"format\": 3}"}) {
    const auto outliers = read(content);
    ASSERT_FALSE(outliers.has_value()) << content;
    EXPECT_THAT(std::string(outliers.error().message()), HasSubstr(path_.string()));
  }
}

}  // namespace
}  // namespace terrace::apps
