#include "run/token_text.hpp"

#include <gmock/gmock.h>

#include "core/temporary_folder.hpp"
#include "run/needles.hpp"

namespace terrace::apps {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class TokenText : public testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(TokenText, TakesTheFirstBytesOfATextAsTokens) {
  const std::string file = folder_.write("text",
                                         "ab\xff"
                                         "d");
  const auto text = read_tokens({.text_file = file}, 256, 3).value();
  EXPECT_THAT(text.tokens, ElementsAre(TokenId{'a'}, TokenId{'b'}, TokenId{255}));
  EXPECT_EQ(text.path, file);
}

TEST_F(TokenText, ThatIsTooShortSaysHowManyThereAreAndHowManyAreNeeded) {
  const std::string file = folder_.write("text", "abcd");
  const auto text = read_tokens({.text_file = file}, 256, 9);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(text.error().message()), AllOf(HasSubstr("4"), HasSubstr("9")));
}

TEST_F(TokenText, ReadsIdsInLittleEndianOrder) {
  const std::string file =
      folder_.write("text", std::string_view("\x01\x02\x00\x00\x05\x00\x00\x00", 8));
  const auto text = read_tokens({.tokens_file = file}, 1000, 2).value();
  EXPECT_THAT(text.tokens, ElementsAre(TokenId{0x201}, TokenId{5}));
}

TEST_F(TokenText, NamesAnIdOutsideTheVocabularyAndItsPosition) {
  const std::string file =
      folder_.write("text", std::string_view("\x01\x00\x00\x00\x2a\x00\x00\x00", 8));
  const auto text = read_tokens({.tokens_file = file}, 42, 2);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(text.error().message()),
              AllOf(HasSubstr("id 42"), HasSubstr("position 1")));
}

TEST_F(TokenText, WithHalfAnIdIsRefused) {
  const std::string file = folder_.write("text", "12345");
  EXPECT_EQ(read_tokens({.tokens_file = file}, 1U << 31, 2).error().code, Errc::invalid_argument);
}

TEST_F(TokenText, WithHalfAnIdAfterTheNeededOnesIsRefused) {
  const std::string file = folder_.write("text", std::string(4 * 10 + 1, '\0'));
  const auto text = read_tokens({.tokens_file = file}, 1000, 2);
  ASSERT_FALSE(text.has_value());
  EXPECT_THAT(std::string(text.error().message()), HasSubstr("41 bytes are no whole number"));
}

TEST_F(TokenText, KeepsEveryByte) {
  const std::string bytes("\xef\xbb\xbf\r\n\0\x1a\n\r", 9);
  const std::string file = folder_.write("text", bytes);
  const auto text = read_tokens({.text_file = file}, 256, 9).value();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(text.tokens[i], TokenId{static_cast<unsigned char>(bytes[i])});
  }
}

TEST_F(TokenText, ReadsNoMoreThanItNeedsOfAFileWithoutEnd) {
  EXPECT_EQ(read_tokens({.text_file = "/dev/zero"}, 256, 100)->tokens.size(), 100U);
  EXPECT_EQ(read_tokens({.tokens_file = "/dev/zero"}, 256, 100)->tokens.size(), 100U);
  const auto needles = read_needles_file("/dev/zero", 100, 256);
  ASSERT_FALSE(needles.has_value());
  EXPECT_THAT(std::string(needles.error().message()), HasSubstr("/dev/zero: is larger than"));
}

TEST_F(TokenText, ThatFailsWhileItIsReadSaysWhy) {
  // Memory of this process at address 0, which cannot be read.
  const auto text = read_tokens({.text_file = "/proc/self/mem"}, 256, 100);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, Errc::io_error);
  EXPECT_THAT(std::string(text.error().message()),
              HasSubstr("/proc/self/mem: cannot be read: Input/output error"));
  EXPECT_THAT(std::string(read_tokens({.text_file = folder_.path()}, 256, 1).error().message()),
              HasSubstr("cannot be read: Is a directory"));
}

TEST_F(TokenText, OfBytesForAnotherVocabularyNamesTheTool) {
  const auto text = read_tokens({}, 128'256, 10);
  ASSERT_FALSE(text.has_value());
  EXPECT_THAT(std::string(text.error().message()), HasSubstr("tools/tokenize.py"));
}

TEST_F(TokenText, ThatCannotBeReadIsAnInputOutputError) {
  EXPECT_EQ(read_tokens({.text_file = "/nowhere"}, 256, 1).error().code, Errc::io_error);
  EXPECT_EQ(read_tokens({.text_file = "/tmp"}, 256, 1).error().code, Errc::io_error);
}

TEST_F(TokenText, IsAlwaysThere) {
  const auto text = read_tokens({}, 256, 1000).value();
  EXPECT_EQ(text.tokens.size(), 1000U);
  EXPECT_FALSE(text.path.empty());
}

}  // namespace
}  // namespace terrace::apps
