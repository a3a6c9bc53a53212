#include "run/turns_file.hpp"

#include <gmock/gmock.h>

#include "core/temporary_folder.hpp"

namespace terrace::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<std::vector<Turn>> read(std::string_view content, std::size_t vocabulary) {
  const TemporaryFolder folder;
  return read_turns_file(folder.write("turns.json", content), vocabulary);
}

TEST(TurnsFile, HasTextsAndListsOfIds) {
  const auto turns = read(R"(["aé", [7, 255]])", 256).value();
  EXPECT_THAT(turns, ElementsAre(ElementsAre(TokenId{'a'}, TokenId{0xc3}, TokenId{0xa9}),
                                 ElementsAre(TokenId{7}, TokenId{255})));
}

TEST(TurnsFile, HasIdsOfAnyVocabularyButTextsOfBytesAlone) {
  EXPECT_THAT(read("[[49151]]", 49152).value(), ElementsAre(ElementsAre(TokenId{49151})));
  const auto refused = read(R"([[1], "a"])", 49152);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(refused.error().message()),
              testing::AllOf(HasSubstr("turn 2"), HasSubstr("tools/tokenize.py")));
}

TEST(TurnsFile, ThatIsSomethingElseIsRefused) {
  for (const char* const content :
       {"", "{}", "[true]", "[[4294967296]]", "[[256]]", "[]", "[\"\"]", "[[]]", "[[1]] 2"}) {
    const auto refused = read(content, 256);
    ASSERT_FALSE(refused.has_value()) << content;
    EXPECT_EQ(refused.error().code, Errc::invalid_argument) << content;
    EXPECT_THAT(std::string(refused.error().message()), HasSubstr("turns.json")) << content;
  }
  EXPECT_EQ(read_turns_file("/nowhere", 256).error().code, Errc::io_error);
}

}  // namespace
}  // namespace terrace::apps
