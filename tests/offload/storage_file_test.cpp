#include "terrace/offload/storage_file.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "core/temporary_folder.hpp"

namespace terrace::offload {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t mebibyte = 1 << 20;

class StorageFileTest : public testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_ / "rows"; }
  std::string message(const StorageFileOptions& options) {
    const auto file = StorageFile::open(options);
    return file ? std::string() : std::string(file.error().message());
  }
  TemporaryFolder folder_;
};

TEST_F(StorageFileTest, IsMadeWithAllItsBlocksAndOnlyItsOwnerReadsIt) {
  const auto file = StorageFile::open({.path = path(), .bytes = mebibyte}).value();
  EXPECT_TRUE(file.created());
  EXPECT_EQ(file.bytes(), mebibyte);
  EXPECT_EQ(fs::file_size(path()), mebibyte);
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(StorageFileTest, KeepsTheSizeThatItHas) {
  {
    ASSERT_TRUE(StorageFile::open({.path = path(), .bytes = mebibyte}));
  }
  const auto file = StorageFile::open({.path = path(), .bytes = 4 * mebibyte}).value();
  EXPECT_FALSE(file.created());
  EXPECT_EQ(file.bytes(), mebibyte);
}

TEST_F(StorageFileTest, IsOpenOnce) {
  const auto first = StorageFile::open({.path = path(), .bytes = mebibyte}).value();
  const auto second =
      StorageFile::open({.path = path(), .bytes = mebibyte, .patience = Duration{}});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::io_error);
  EXPECT_THAT(std::string(second.error().message()), HasSubstr("another process has it open"));
}

TEST_F(StorageFileTest, IsNotLeftBehindWhereItCannotHaveItsSize) {
  EXPECT_THAT(message({.path = path(), .bytes = 0}), HasSubstr("multiple of 4096 bytes, not 0"));
  EXPECT_THAT(message({.path = path(), .bytes = 5000}), HasSubstr("not 5000"));
  EXPECT_THAT(message({.path = path(), .bytes = std::uint64_t{1} << 62}),
              HasSubstr("cannot be written"));
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(StorageFileTest, IsNoFolderAndLiesInOne) {
  EXPECT_THAT(message({.path = folder_ / "", .bytes = mebibyte}), HasSubstr("cannot be written"));
  EXPECT_THAT(message({.path = "/dev/null", .bytes = mebibyte}), HasSubstr("neither a file nor"));
  EXPECT_THAT(message({.path = folder_ / "not/there", .bytes = mebibyte}),
              HasSubstr("No such file"));
}

}  // namespace
}  // namespace terrace::offload
