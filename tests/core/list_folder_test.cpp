#include "terrace/core/list_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/temporary_folder.hpp"

namespace terrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ListFolder, ReturnsEveryPathInOrderOfNames) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "b");
  std::filesystem::create_symlink("gone", folder / "c");
  for (const char* name : {"d", ".a", "b/within"}) folder.write(name, "x");
  const auto paths = list_folder(folder.path());
  ASSERT_TRUE(paths.has_value()) << paths.error().message();
  EXPECT_THAT(*paths, ElementsAre(folder / ".a", folder / "b", folder / "c", folder / "d"));
}

TEST(ListFolder, ReturnsNothingOfAnEmptyFolder) {
  const auto paths = list_folder(TemporaryFolder().path());
  ASSERT_TRUE(paths.has_value()) << paths.error().message();
  EXPECT_THAT(*paths, IsEmpty());
}

TEST(ListFolder, SaysWhichFolderCannotBeReadAndWhy) {
  const TemporaryFolder folder;
  folder.write("a", "x");
  for (const auto& [name, reason] :
       {std::pair{"a", "Not a directory"}, std::pair{"b", "No such"}}) {
    const std::string path = folder / name;
    const auto paths = list_folder(path);
    ASSERT_FALSE(paths.has_value());
    EXPECT_EQ(paths.error().code, Errc::io_error);
    EXPECT_THAT(std::string(paths.error().message()),
                AllOf(HasSubstr(path + ": cannot be read: "), HasSubstr(reason)));
  }
}

}  // namespace
}  // namespace terrace
