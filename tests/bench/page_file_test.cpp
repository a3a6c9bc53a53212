#include "nvme/page_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "core/temporary_folder.hpp"

namespace terrace::bench {
namespace {

constexpr std::uint64_t bytes = 4 << 20;
constexpr Duration moment = std::chrono::milliseconds(5);

class PageFileTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::unique_ptr<PageFile> file_ = PageFile::create(folder_.path(), bytes).value();
};

TEST_F(PageFileTest, LeavesNothingBehind) {
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_EQ(std::filesystem::file_size(file_->path()), bytes);
}

TEST_F(PageFileTest, MeasuresReadsAndWrites) {
  for (const bool writes : {false, true, false}) {
    for (const bool scattered : {false, true}) {
      const auto figures = file_->run(
          {.writes = writes, .scattered = scattered, .page_bytes = 65536, .depth = 4}, moment);
      ASSERT_TRUE(figures) << figures.error().message();
      EXPECT_GT(figures->bytes_per_second, 0);
    }
  }
}

TEST_F(PageFileTest, FindsABlockThatIsNotWhatWasWritten) {
  const int other = ::open(file_->path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(other, 0);
  std::array<char, 8> word{};
  ASSERT_EQ(::pwrite(other, word.data(), word.size(), 17 * 4096), 8);
  ASSERT_EQ(::fsync(other), 0);
  ::close(other);
  // Each page at least once.
  const auto figures = file_->run({.page_bytes = 65536, .depth = 4}, std::chrono::seconds(2));
  ASSERT_FALSE(figures);
  EXPECT_EQ(figures.error().code, Errc::corrupt);
  EXPECT_EQ(figures.error().message(), "block 17 is not what was written");
}

}  // namespace
}  // namespace terrace::bench
