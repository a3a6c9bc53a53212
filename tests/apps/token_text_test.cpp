#include "run/token_text.hpp"

#include <gmock/gmock.h>

#include "temporary_file.hpp"

namespace terrace::apps {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TokenText, TakesTheFirstBytesOfATextAsTokens) {
  const TemporaryFile file(
      "ab\xff"
      "d");
  const auto text = read_tokens({.text_file = file.path()}, 256, 3).value();
  EXPECT_THAT(text.tokens, ElementsAre(TokenId{'a'}, TokenId{'b'}, TokenId{255}));
  EXPECT_EQ(text.path, file.path());
}

TEST(TokenText, ThatIsTooShortSaysHowManyThereAreAndHowManyAreNeeded) {
  const TemporaryFile file("abcd");
  const auto text = read_tokens({.text_file = file.path()}, 256, 9);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(text.error().message()), AllOf(HasSubstr("4"), HasSubstr("9")));
}

TEST(TokenText, ReadsIdsInLittleEndianOrder) {
  const TemporaryFile file(std::string_view("\x01\x02\x00\x00\x05\x00\x00\x00", 8));
  const auto text = read_tokens({.tokens_file = file.path()}, 1000, 2).value();
  EXPECT_THAT(text.tokens, ElementsAre(TokenId{0x201}, TokenId{5}));
}

TEST(TokenText, NamesAnIdOutsideTheVocabularyAndItsPosition) {
  const TemporaryFile file(std::string_view("\x01\x00\x00\x00\x2a\x00\x00\x00", 8));
  const auto text = read_tokens({.tokens_file = file.path()}, 42, 2);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(text.error().message()),
              AllOf(HasSubstr("id 42"), HasSubstr("position 1")));
}

TEST(TokenText, WithHalfAnIdIsRefused) {
  const TemporaryFile file("12345");
  EXPECT_EQ(read_tokens({.tokens_file = file.path()}, 1U << 31, 2).error().code,
            Errc::invalid_argument);
}

TEST(TokenText, OfBytesForAnotherVocabularyNamesTheTool) {
  const auto text = read_tokens({}, 128'256, 10);
  ASSERT_FALSE(text.has_value());
  EXPECT_THAT(std::string(text.error().message()), HasSubstr("tools/tokenize.py"));
}

TEST(TokenText, ThatCannotBeReadIsAnInputOutputError) {
  EXPECT_EQ(read_tokens({.text_file = "/nowhere"}, 256, 1).error().code, Errc::io_error);
  EXPECT_EQ(read_tokens({.text_file = "/tmp"}, 256, 1).error().code, Errc::io_error);
}

TEST(TokenText, IsAlwaysThere) {
  const auto text = read_tokens({}, 256, 1000).value();
  EXPECT_EQ(text.tokens.size(), 1000U);
  EXPECT_FALSE(text.path.empty());
}

}  // namespace
}  // namespace terrace::apps
