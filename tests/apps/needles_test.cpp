#include "run/needles.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/temporary_folder.hpp"

namespace terrace::apps {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

std::string spelled(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += static_cast<char>(index(token));
  return text;
}

std::vector<TokenId> dots(std::size_t count) { return std::vector<TokenId>(count, TokenId{'.'}); }

TEST(Needles, SayTheFactTheQuestionAndTheAnswerInOneWording) {
  const auto needles = make_needles(1, 7).value();
  EXPECT_THAT(spelled(needles[0].statement),
              MatchesRegex("\nNote: the pass code of the [a-z]+ [a-z]+ is [1-9][0-9]{3,5}\\.\n"));
  const std::string fact = spelled(needles[0].statement).substr(7);
  EXPECT_EQ("\nAgain: " + fact, spelled(needles[0].question) + spelled(needles[0].answer));
}

TEST(Needles, MarkExactlyTheDigitsOfTheAnswer) {
  const auto needles = make_needles(20, 3).value();
  for (const Needle& needle : needles) {
    ASSERT_EQ(needle.answer.size(), needle.answer_is_digit.size());
    for (std::size_t i = 0; i < needle.answer.size(); ++i) {
      const auto token = index(needle.answer[i]);
      EXPECT_EQ(needle.answer_is_digit[i], token >= '0' && token <= '9');
    }
  }
}

TEST(NeedleForms, PlainHasOtherWordsAndWordingThanTheModelWasTrainedOn) {
  const NeedleForm plain = parse_needle_form("plain").value();
  const NeedleForm trained = parse_needle_form("trained").value();
  for (const std::string_view word : plain.adjectives) {
    EXPECT_EQ(std::ranges::count(trained.adjectives, word), 0) << word;
    EXPECT_EQ(std::ranges::count(plain.adjectives, word), 1) << word;
  }
  for (const std::string_view word : plain.nouns) {
    EXPECT_EQ(std::ranges::count(trained.nouns, word), 0) << word;
    EXPECT_EQ(std::ranges::count(plain.nouns, word), 1) << word;
  }
  const auto needles = make_needles(1, 7, plain).value();
  EXPECT_THAT(spelled(needles[0].statement),
              MatchesRegex("\nThe serial number of the [a-z]+ [a-z]+ is [1-9][0-9]{3,5}\\.\n"));
  EXPECT_EQ(spelled(needles[0].statement),
            spelled(needles[0].question) + spelled(needles[0].answer));
}

TEST(NeedleForms, OfAUserAskUpToTheDigits) {
  const NeedleForm form =
      parse_needle_form("7 {noun}s, {adjective}:{digits}|How many {adjective} {noun}s?  {digits}9")
          .value();
  const auto needles = make_needles(20, 3, form).value();
  for (const Needle& needle : needles) {
    EXPECT_THAT(spelled(needle.statement), MatchesRegex("\n7 [a-z]+s, [a-z]+:[0-9]{4,6}\n"));
    EXPECT_THAT(spelled(needle.question), MatchesRegex("\nHow many [a-z]+ [a-z]+s\\?"));
    const std::string answer = spelled(needle.answer);
    EXPECT_THAT(answer, MatchesRegex("  [0-9]{4,6}9\n"));
    for (std::size_t i = 0; i < answer.size(); ++i) {  // the 9 after the digits belongs to the form
      EXPECT_EQ(needle.answer_is_digit[i], i >= 2 && i + 2 < answer.size()) << i;
    }
    EXPECT_THAT(spelled(needle.statement), HasSubstr(":" + answer.substr(2, answer.size() - 4)));
  }
}

TEST(NeedleForms, ThatCannotBeAskedForAreRefused) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "neither trained nor plain"},
      {"plian", "'plian'"},
      {"The {adjective} {noun}.", "{digits} 0 times"},
      {"{adjective} {noun} {noun} {digits}", "{noun} 2 times"},
      {"{adjective} {noun} {number} {digits}", "braces"},
      {"{adjective} {noun} {digits} }", "braces"},
      {"{digits}: the {adjective} {noun}", "before {digits}"},
      {"{digits}: the {adjective} {noun}|the {adjective} {noun}:", "the question has {digits} 0"},
      {"|{adjective} {noun} {digits}", "the fact has {adjective} 0"},
      {"{adjective} {noun} {digits}|{adjective} {noun} {digits}|", "once"},
      {"{adjective} {noun}\n{digits}", "one line"},
  };
  for (const auto& [text, mention] : wrong) {
    const auto form = parse_needle_form(text);
    ASSERT_FALSE(form.has_value()) << text;
    EXPECT_EQ(form.error().code, Errc::invalid_argument) << text;
    EXPECT_THAT(std::string(form.error().message()), HasSubstr(mention)) << text;
  }
}

TEST(Needles, HaveDistinctNamesThatTheSeedDecides) {
  const auto needles = make_needles(900, 1).value();
  std::set<std::string> names;
  for (const Needle& needle : needles) names.insert(spelled(needle.question));
  EXPECT_EQ(names.size(), 900U);
  EXPECT_EQ(spelled(make_needles(1, 1)->front().statement), spelled(needles[0].statement));
  EXPECT_NE(spelled(make_needles(1, 2)->front().statement), spelled(needles[0].statement));
}

TEST(Needles, MoreThanThereAreNamesAreRefused) {
  const auto needles = make_needles(901, 0);
  ASSERT_FALSE(needles.has_value());
  EXPECT_EQ(needles.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(needles.error().message()), HasSubstr("900"));
}

TEST(Needles, LieInTheContextAtTheirDepths) {
  constexpr std::size_t context = 1000;
  const auto needles = make_needles(4, 5).value();
  const std::size_t room = room_beside(needles, context).value();
  const auto tokens = plant_needles(needles, dots(room + 50), context).value();
  ASSERT_EQ(tokens.size(), context + 50);
  const std::string text = spelled(tokens);
  std::size_t planted_before = 0;
  for (const Needle& needle : needles) {
    const std::size_t at = text.find(spelled(needle.statement));
    ASSERT_LE(at + needle.statement.size(), context);
    const auto expected = static_cast<std::size_t>(needle.depth * static_cast<double>(room));
    EXPECT_EQ(at - planted_before, expected);
    planted_before += needle.statement.size();
  }
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(text, '.')), room + 50 + needles.size());
}

TEST(Needles, ThatFillTheContextAreRefused) {
  const auto needles = make_needles(10, 0).value();
  const auto tokens = plant_needles(needles, dots(200), 200);
  ASSERT_FALSE(tokens.has_value());
  EXPECT_EQ(tokens.error().code, Errc::invalid_argument);
}

constexpr const char* side_file = R"({"version": 1, "context_tokens": 64, "needles": [
  {"depth": 0.25, "position": 9, "statement": [1, 2, 3], "question": [4, 5], "answer": [6, 7],
   "answer_is_digit": [false, true]}]})";

TEST(NeedlesFile, GivesWhatTheToolWrote) {
  const TemporaryFolder folder;
  const std::string file = folder.write("needles.json", side_file);
  const auto needles = read_needles_file(file, 64, 8).value();
  ASSERT_EQ(needles.size(), 1U);
  EXPECT_EQ(needles[0].depth, 0.25);
  EXPECT_EQ(needles[0].question, (std::vector{TokenId{4}, TokenId{5}}));
  EXPECT_EQ(needles[0].answer_is_digit, (std::vector{false, true}));
}

TEST(NeedlesFile, OfAnotherContextOrVocabularyIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.write("needles.json", side_file);
  EXPECT_EQ(read_needles_file(file, 65, 8).error().code, Errc::invalid_argument);
  EXPECT_EQ(read_needles_file(file, 64, 7).error().code, Errc::invalid_argument);
}

TEST(NeedlesFile, OfOtherTokensIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.write("needles.json", side_file);
  const auto needles = read_needles_file(file, 64, 8).value();
  std::vector<TokenId> tokens = dots(64);
  const Status without = check_planted(needles, tokens, file);
  ASSERT_FALSE(without.has_value());
  EXPECT_EQ(without.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(without.error().message()), HasSubstr(file));
  std::ranges::copy(needles[0].statement, tokens.begin() + 61);
  EXPECT_TRUE(check_planted(needles, tokens, file).has_value());
}

TEST(NeedlesFile, ThatIsSomethingElseIsCorrupt) {
  const TemporaryFolder folder;
  for (const char* const content : {"", "[]", "{\"version\": 1}", "not json",
                                    R"({"version": 1, "context_tokens": 64, "needles": [{}]})"}) {
    const std::string file = folder.write("needles.json", content);
    EXPECT_EQ(read_needles_file(file, 64, 8).error().code, Errc::corrupt) << content;
  }
  for (const char* const path : {"/nowhere", "/"}) {
    EXPECT_EQ(read_needles_file(path, 64, 8).error().code, Errc::io_error);
  }
}

/// Reads a side file with one needle in which `to` stands in place of `from`.
Status read_altered(const std::string& from, const std::string& to) {
  std::string text =
      R"({"version": 1, "context_tokens": 64, "needles": [{"depth": 0.25, "statement": [1],)"
      R"( "question": [2], "answer": [3], "answer_is_digit": [true]}]})";
  text.replace(text.find(from), from.size(), to);
  const TemporaryFolder folder;
  const auto needles = read_needles_file(folder.write("needles.json", text), 64, 8);
  if (needles) return {};
  return tl::unexpected(needles.error());
}

TEST(NeedlesFile, WithValuesOfOtherTypesIsRefused) {
  ASSERT_TRUE(read_altered("64", "64").has_value());
  const std::pair<const char*, const char*> altered[] = {
      {"1,", "true,"},     {"1,", "1.5,"},        {"64", "64.0"},    {"[1]", "[-4294967295]"},
      {"[2]", "[2.5]"},    {"[2]", "{\"a\": 2}"}, {"[3]", "[true]"}, {"0.25", "-1"},
      {"0.25", "1.5"},     {"0.25", "true"},      {"[true]", "[1]"}, {"[1]", "[4294967297]"},
      {"[{", "{\"a\": {"},
  };
  for (const auto& [from, to] : altered) {
    const Status read = read_altered(from, to);
    ASSERT_FALSE(read.has_value()) << from << " as " << to;
    EXPECT_EQ(read.error().code, Errc::corrupt) << from << " as " << to;
  }
  EXPECT_EQ(read_altered("[1]", "[8]").error().code, Errc::invalid_argument);
  using namespace std::string_literals;
  EXPECT_EQ(read_altered("]}]}", "]}]}\0x"s).error().code, Errc::corrupt);
  EXPECT_EQ(read_altered("{\"version", "\xef\xbb\xbf{\"version").error().code, Errc::corrupt);
}

}  // namespace
}  // namespace terrace::apps
