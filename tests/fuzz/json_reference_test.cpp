#include "fuzz/json_reference.hpp"

#include <gtest/gtest.h>

namespace terrace {
namespace {

using namespace std::string_view_literals;

TEST(JsonReference, TakesWhatTheGrammarHas) {
  for (const auto text :
       {"0"sv, "-0"sv, "-1.5e+10"sv, "1E5"sv, "true"sv, " null\r\n\t"sv, R"("\u00e9\n\/")"sv,
        R"("\ud83d\ude00")"sv, "\"\xc3\xa9\x7f\xf0\x9f\x98\x80\""sv, "[]"sv, "{ }"sv,
        R"([1, [], {"a": {"b": [null]}, "a": 2}])"sv}) {
    EXPECT_TRUE(is_json(text)) << text;
  }
}

TEST(JsonReference, RefusesAllElse) {
  for (const auto text : {""sv,
                          "01"sv,
                          "1."sv,
                          ".5"sv,
                          "+1"sv,
                          "1e"sv,
                          "-"sv,
                          "NaN"sv,
                          "True"sv,
                          "'a'"sv,
                          "[1,]"sv,
                          "[,1]"sv,
                          "{\"a\":1,}"sv,
                          "{\"a\"}"sv,
                          "{a:1}"sv,
                          "{1:1}"sv,
                          "[1}"sv,
                          "[1"sv,
                          "1 2"sv,
                          "\"a"sv,
                          "\"\n\""sv,
                          R"("\x41")"sv,
                          R"("\u12g4")"sv,
                          R"("\ud800")"sv,
                          R"("\udc00")"sv,
                          R"("\ud800\u0041")"sv,
                          "\"\xff\""sv,
                          "\"\xc0\x80\""sv,
                          "\"\xed\xa0\x80\""sv,
                          "\"\xf4\x90\x80\x80\""sv,
                          "\"\xe2\x82\""sv,
                          "\xef\xbb\xbf{}"sv,
                          "{}\0"sv,
                          "1\v"sv,
                          "/**/1"sv}) {
    EXPECT_FALSE(is_json(text)) << text;
  }
}

}  // namespace
}  // namespace terrace
