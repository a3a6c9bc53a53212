// Files appear whole or not at all.
#include "terrace/core/replace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/temporary_folder.hpp"

namespace terrace {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ReplaceFile : public ::testing::Test {
 protected:
  static std::string content(const fs::path& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  [[nodiscard]] auto files() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }

  TemporaryFolder folder_;
};

TEST_F(ReplaceFile, WritesAndReplaces) {
  const fs::path path = folder_ / "a";
  ASSERT_TRUE(replace_file(path, "one").has_value());
  ASSERT_TRUE(replace_file(path, std::string_view("t\0wo", 4)).has_value());
  EXPECT_EQ(content(path), std::string_view("t\0wo", 4));
  EXPECT_EQ(files(), 1);
}

TEST_F(ReplaceFile, LeavesNothingBehindWhenItCannotWrite) {
  const Status missing = replace_file(folder_ / "no" / "a", "x");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Errc::io_error);
  EXPECT_THAT(std::string(missing.error().message()), HasSubstr("No such file"));

  fs::create_directories(folder_ / "a" / "b");  // a folder is in the way
  EXPECT_FALSE(replace_file(folder_ / "a", "x").has_value());
  EXPECT_EQ(files(), 1);
}

TEST_F(ReplaceFile, PublishesWhatIsPendingOrRemovesIt) {
  const std::string path = folder_ / "a";
  {
    std::vector<PendingFile> files;
    files.push_back(PendingFile::write(path, "one").value());
    files.push_back(PendingFile::write(folder_ / "b", "two").value());
    EXPECT_FALSE(fs::exists(path));
    EXPECT_FALSE(PendingFile::write(folder_ / "no" / "c", "three").has_value());
  }
  EXPECT_EQ(files(), 0) << "one of three could not be written";
  std::vector<PendingFile> both;
  both.push_back(PendingFile::write(path, "one").value());
  both.push_back(PendingFile::write(folder_ / "b", "two").value());
  ASSERT_TRUE(publish_all(both).has_value());
  both.clear();
  EXPECT_EQ(content(path), "one");
  EXPECT_EQ(content(folder_ / "b"), "two");
  EXPECT_EQ(files(), 2);
}

TEST_F(ReplaceFile, GivesEveryWriterANameOfItsOwn) {
  const std::string path = folder_ / "a";
  EXPECT_NE(temporary_name(path), temporary_name(path));
  EXPECT_EQ(fs::path(temporary_name(path)).parent_path(), folder_.path())
      << "so that it can be renamed";
}

TEST_F(ReplaceFile, KnowsATargetThatWouldBeWrittenOverAnotherFile) {
  const std::string old = folder_ / "old";
  ASSERT_TRUE(replace_file(old, "x").has_value());
  fs::create_symlink(old, folder_ / "link");
  const std::string link = folder_ / "link";
  const std::string fresh = folder_ / "new";
  const std::string around = folder_ / "." / "none" / ".." / "new";

  EXPECT_TRUE(check_targets({{"--a", fresh}, {"--b", ""}, {"--c", ""}}, {{"--in", old}}));
  for (const std::string& target : {old, link}) {
    const Status over = check_targets({{"--a", fresh}, {"--b", target}}, {{"--in", old}});
    ASSERT_FALSE(over.has_value()) << target;
    EXPECT_EQ(over.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(over.error().message()),
                HasSubstr("--b " + target + ": is the same file as --in"));
  }
  const Status twice = check_targets({{"--a", fresh}, {"--b", around}}, {});
  ASSERT_FALSE(twice.has_value());
  EXPECT_THAT(std::string(twice.error().message()), HasSubstr("the same file as --a"));
  EXPECT_EQ(check_targets({{"--a", folder_.path()}}, {}).error().code, Errc::io_error);
  EXPECT_EQ(content(old), "x");
}

}  // namespace
}  // namespace terrace
