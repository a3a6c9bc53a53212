#include "terrace/core/read_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/temporary_folder.hpp"

namespace terrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ReadFile, ReturnsEveryByte) {
  const TemporaryFolder folder;
  const std::string large(std::size_t{1} << 16, 'x');  // as much as is read at a time
  for (const std::string& content : {std::string(), std::string("a\0b\n", 4), large, large + "y"}) {
    const auto read = read_file(folder.write("a", content), 1 << 20);
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(*read, content);
  }
}

TEST(ReadFile, SaysWhichFileCannotBeReadAndWhy) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a");
  for (const auto& [name, reason] : {std::pair{"a", "directory"}, std::pair{"b", "No such file"}}) {
    const std::string path = folder / name;
    const auto read = read_file(path, 1 << 20);
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code, Errc::io_error);
    EXPECT_THAT(std::string(read.error().message()),
                AllOf(HasSubstr(path + ": cannot be read: "), HasSubstr(reason)));
    EXPECT_NE(read.error().native, 0);
  }
}

TEST(ReadFile, ReadsNoMoreThanItsBound) {
  const TemporaryFolder folder;
  EXPECT_TRUE(read_file(folder.write("a", std::string(1 << 17, 'x')), 1 << 17).has_value());
  for (const std::string& path :
       {folder.write("b", std::string((1 << 17) + 1, 'x')), std::string("/dev/zero")}) {
    const auto read = read_file(path, 1 << 17);
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(read.error().message()), HasSubstr(path + ": is larger than 128"));
  }
}

TEST(ReadFile, NamesALinkToNothingAndWhereItLeads) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("gone/blob", folder / "file");
  std::filesystem::create_symlink(folder / "lost", folder / "dir");
  std::filesystem::create_symlink("file", folder / "second");
  const auto message_of = [](const std::string& path) {
    return std::string(read_file(path, 1 << 20).error().message());
  };
  EXPECT_THAT(
      message_of(folder / "file"),
      HasSubstr((folder / "file").string() + ": is a link to gone/blob, which is not there"));
  EXPECT_THAT(
      message_of(folder / "dir/config.json"),
      HasSubstr((folder / "dir").string() + ": is a link to " + (folder / "lost").string()));
  EXPECT_THAT(message_of(folder / "second"), HasSubstr("second: is a link to file"));
  std::filesystem::create_symlink("itself", folder / "itself");
  EXPECT_THAT(message_of(folder / "itself"), HasSubstr("cannot be read: Too many levels"));
}

}  // namespace
}  // namespace terrace
