#include "progress.hpp"

#include <gmock/gmock.h>

namespace terrace::apps {
namespace {

using testing::EndsWith;

TEST(ProgressLine, DrawsHowMuchIsDone) {
  EXPECT_EQ(progress_line("oracle: decode", 0, 80), "oracle: decode [--------------------] 0 %");
  EXPECT_EQ(progress_line("oracle: decode", 0.43, 80),
            "oracle: decode [########------------] 43 %");
  EXPECT_EQ(progress_line("oracle: decode", 1.01, 80),
            "oracle: decode [####################] 100 %");
}

TEST(ProgressLine, FitsTheTerminalWithTheEndOfWhatIsSaid) {
  const std::string words = "/a/folder/text: 3 of 12, oracle: decode";
  for (std::size_t columns = 6; columns < 80; ++columns) {
    const std::string line = progress_line(words, 0.43, columns);
    EXPECT_LE(line.size(), columns);
    EXPECT_THAT(line, EndsWith(" 43 %"));
  }
  EXPECT_EQ(progress_line(words, 0.43, 19), "oracle: decode 43 %");
}

}  // namespace
}  // namespace terrace::apps
