#include "terrace/offload/storage_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "core/temporary_folder.hpp"
#include "offload/loop_device.hpp"

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

TEST_F(StorageFileTest, IsMadeWhereALinkLeads) {
  fs::create_symlink("target", path());
  {
    const auto file = StorageFile::open({.path = path(), .bytes = mebibyte}).value();
    EXPECT_TRUE(file.created());
  }
  EXPECT_TRUE(fs::is_symlink(path()));
  EXPECT_EQ(fs::file_size(folder_ / "target"), mebibyte);
}

TEST_F(StorageFileTest, LeavesALinkToNothingWhereItCannotHaveItsSize) {
  fs::create_symlink("target", path());
  EXPECT_THAT(message({.path = path(), .bytes = 5000}), HasSubstr("not 5000"));
  EXPECT_TRUE(fs::is_symlink(path()));
  EXPECT_FALSE(fs::exists(folder_ / "target"));
}

TEST_F(StorageFileTest, LeavesAnEmptyFileEmptyWhereItCannotHaveItsSize) {
  folder_.write("rows", "");
  EXPECT_THAT(message({.path = path(), .bytes = std::uint64_t{1} << 62}),
              HasSubstr("cannot be written"));
  EXPECT_EQ(fs::file_size(path()), 0U);
}

/// Descriptors of this process that lead to a path.
std::ptrdiff_t descriptors_of(const std::string& path) {
  std::error_code ignored;  // of one that another thread has closed meanwhile
  return std::ranges::count_if(fs::directory_iterator("/proc/self/fd"), [&](const auto& each) {
    return fs::read_symlink(each.path(), ignored) == path;
  });
}

/// The lock of a removed file says nothing of the one that is there now.
TEST_F(StorageFileTest, IsTheFileAtItsPathWhenTheOneThatItWaitedForIsRemoved) {
  std::optional<StorageFile> first = StorageFile::open({.path = path(), .bytes = mebibyte}).value();
  std::optional<Result<StorageFile>> second;
  std::thread other([&] {
    second.emplace(StorageFile::open(
        {.path = path(), .bytes = mebibyte, .patience = std::chrono::minutes(10)}));
  });
  while (descriptors_of(path()) < 2) std::this_thread::yield();
  fs::remove(path());
  first.reset();
  other.join();
  ASSERT_TRUE(*second);
  EXPECT_TRUE(fs::exists(path()));
}

TEST_F(StorageFileTest, IsStillThereWhenItsProcessGoesToAnotherFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "");
  const auto file = StorageFile::open({.path = "rows", .bytes = mebibyte}).value();
  fs::current_path(before);
  EXPECT_TRUE(file.check_place());
  fs::remove(path());
  EXPECT_EQ(file.check_place().error().code, Errc::io_error);
}

/// A child that lives on is no user of the file.
TEST_F(StorageFileTest, IsFreeAgainThoughAForkedChildLivesOn) {
  std::optional<StorageFile> file = StorageFile::open({.path = path(), .bytes = mebibyte}).value();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[1]);
    char byte = 0;
    static_cast<void>(::read(ends[0], &byte, 1));  // until the other end is closed
    ::_exit(0);
  }
  ::close(ends[0]);
  file.reset();
  EXPECT_EQ(message({.path = path(), .bytes = mebibyte, .patience = std::chrono::minutes(10)}), "");
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
}

TEST_F(StorageFileTest, IsWaitedForWhereItIsADeviceInUse) {
  folder_.write("image", std::string(mebibyte, '\0'));
  const LoopDevice device(folder_ / "image");
  if (!device.is_there()) GTEST_SKIP() << "no loop device for this process";
  std::optional<StorageFile> first = StorageFile::open({.path = device.path()}).value();
  EXPECT_THAT(message({.path = device.path(), .patience = Duration{}}),
              HasSubstr("another process has it open"));
  std::optional<Result<StorageFile>> second;
  std::thread other([&] {
    second.emplace(
        StorageFile::open({.path = device.path(), .patience = std::chrono::minutes(10)}));
  });
  first.reset();
  other.join();
  ASSERT_TRUE(*second) << second->error().message();
  EXPECT_EQ((*second)->bytes(), mebibyte);
}

TEST_F(StorageFileTest, IsNoFolderAndLiesInOne) {
  EXPECT_THAT(message({.path = folder_ / "", .bytes = mebibyte}), HasSubstr("cannot be written"));
  EXPECT_THAT(message({.path = "/dev/null", .bytes = mebibyte}), HasSubstr("neither a file nor"));
  EXPECT_THAT(message({.path = folder_ / "not/there", .bytes = mebibyte}),
              HasSubstr("No such file"));
}

}  // namespace
}  // namespace terrace::offload
