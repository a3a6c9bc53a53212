// Files appear whole or not at all.
#include "terrace/core/replace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace terrace {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ReplaceFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              (std::string("replace_file_") +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string content(const fs::path& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  [[nodiscard]] auto files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  fs::path folder_;
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

}  // namespace
}  // namespace terrace
