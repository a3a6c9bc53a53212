// Files appear whole or not at all.
#include "terrace/core/replace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
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

TEST_F(ReplaceFile, KeepsWhoMayReadAFile) {
  const auto mode_of = [](const fs::path& path) {
    return static_cast<unsigned>(fs::status(path).permissions());
  };
  const mode_t masked = ::umask(022);
  const std::string path = folder_.write("a", "one");
  fs::create_symlink("a", folder_ / "link");
  for (const unsigned mode : {0600U, 0640U, 0664U, 0400U, 0755U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    ASSERT_TRUE(replace_file(path, "two").has_value());
    EXPECT_EQ(mode_of(path), mode);
    const PendingFile pending = PendingFile::create(folder_ / "link").value();
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      if (entry.path().extension() == ".tmp") {
        EXPECT_EQ(mode_of(entry.path()), mode);
      }
    }
  }
  ASSERT_TRUE(replace_file(folder_ / "new", "x").has_value());
  EXPECT_EQ(mode_of(folder_ / "new"), 0644U);
  ::umask(077);
  ASSERT_TRUE(replace_file(folder_ / "newer", "x").has_value());
  EXPECT_EQ(mode_of(folder_ / "newer"), 0600U);
  ::umask(masked);
}

TEST_F(ReplaceFile, LeavesNoFileWhenItCannotWrite) {
  const Status missing = replace_file(folder_ / "no" / "a", "x");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Errc::io_error);
  EXPECT_THAT(std::string(missing.error().message()), HasSubstr("No such file"));

  fs::create_directories(folder_ / "a" / "b");  // a folder is in the way
  EXPECT_FALSE(replace_file(folder_ / "a", "x").has_value());
  EXPECT_EQ(files(), 1);
}

TEST_F(ReplaceFile, KnowsBeforehandThatAFileIsNoFolder) {
  const std::string path = folder_.write("a", "") + "/b";
  const Status beforehand = check_replaceable(path);
  ASSERT_FALSE(beforehand.has_value());
  EXPECT_THAT(std::string(beforehand.error().message()), HasSubstr("Not a directory"));
  EXPECT_TRUE(check_replaceable("in_this_folder").has_value());
}

TEST_F(ReplaceFile, LeavesAloneWhatIsNoRegularFile) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink("pipe", folder_ / "to_pipe");
  fs::create_symlink("round", folder_ / "round");
  for (const std::string path : {folder_ / "pipe", folder_ / "to_pipe", folder_ / "round"}) {
    const Status beforehand = check_replaceable(path);
    ASSERT_FALSE(beforehand.has_value()) << path;
    EXPECT_EQ(beforehand.error().code, Errc::io_error);
    EXPECT_THAT(std::string(beforehand.error().message()), HasSubstr(path + ": cannot be written"));
    EXPECT_FALSE(replace_file(path, "x").has_value()) << path;
  }
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_TRUE(fs::is_symlink(folder_ / "to_pipe"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "round"));
  EXPECT_EQ(files(), 3);
}

TEST_F(ReplaceFile, WritesWhatALinkNames) {
  fs::create_directory(folder_ / "far");
  fs::create_symlink("far/a", folder_ / "near");  // dangling
  fs::create_symlink("near", folder_ / "nearer");
  const fs::path link = folder_ / "nearer";
  const PendingFile pending = PendingFile::create(link).value();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "far"), fs::directory_iterator()), 1)
      << "beside the file, so that it can be renamed";
  for (const char* const text : {"one", "two"}) {
    EXPECT_TRUE(check_replaceable(link).has_value());
    ASSERT_TRUE(replace_file(link, text).has_value());
    EXPECT_EQ(content(folder_ / "far" / "a"), text);
  }
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::is_symlink(folder_ / "near"));
  EXPECT_FALSE(fs::is_symlink(folder_ / "far" / "a"));
  EXPECT_EQ(files(), 3);

  fs::create_symlink("/no/such/folder/a", folder_ / "lost");
  EXPECT_FALSE(check_replaceable(folder_ / "lost").has_value());
  EXPECT_FALSE(replace_file(folder_ / "lost", "x").has_value());
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

TEST_F(ReplaceFile, RemovesAllThatIsPendingForAProgramThatASignalEnds) {
  ASSERT_TRUE(replace_file(folder_ / "whole", "x").has_value());
  {
    std::vector<PendingFile> pending;
    for (const char* const name : {"a", "b"}) {
      pending.push_back(PendingFile::write(folder_ / name, "x").value());
    }
    EXPECT_EQ(files(), 3);
    remove_pending_files();
    EXPECT_EQ(files(), 1) << "of what was published nothing goes";
    EXPECT_FALSE(pending.front().publish().has_value());
    remove_pending_files();
  }
  ASSERT_TRUE(replace_file(folder_ / "whole", "y").has_value());
  EXPECT_EQ(content(folder_ / "whole"), "y");
}

TEST_F(ReplaceFile, TakesMorePendingFilesThanASignalCouldRemove) {
  std::vector<PendingFile> pending;
  for (int i = 0; i < 70; ++i) {
    pending.push_back(PendingFile::write(folder_ / std::to_string(i), "x").value());
  }
  ASSERT_TRUE(publish_all(pending).has_value());
  EXPECT_EQ(files(), 70);
}

TEST_F(ReplaceFile, KeepsWritersOfOneFileApart) {
  const std::string path = folder_ / "a";
  PendingFile one = PendingFile::create(path).value();
  PendingFile two = PendingFile::create(path).value();
  EXPECT_EQ(files(), 2);
  one.append("first");
  two.append("second");
  ASSERT_TRUE(two.publish().has_value());
  EXPECT_EQ(content(path), "second");
  ASSERT_TRUE(one.publish().has_value());
  EXPECT_EQ(content(path), "first");
  EXPECT_EQ(files(), 1);
}

TEST_F(ReplaceFile, WritesFilesThatOthersMayRead) {
  const mode_t before = ::umask(027);
  ASSERT_TRUE(replace_file(folder_ / "a", "x").has_value());
  ::umask(before);
  EXPECT_EQ(fs::status(folder_ / "a").permissions(), fs::perms(0640));
}

TEST_F(ReplaceFile, TakesTheLongestNameThereIs) {
  const std::string name(255, 'n');
  ASSERT_TRUE(replace_file(folder_ / name, "x").has_value());
  EXPECT_EQ(content(folder_ / name), "x");
}

/// Lets no file of this process grow beyond some bytes.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(ReplaceFile, SaysWhyTheFirstWriteFailed) {
  const FileLimit limit(1000);
  PendingFile pending = PendingFile::create(folder_ / "a").value();
  for (int i = 0; i < 100; ++i) pending.append(std::string(1000, 'x'));
  errno = EINVAL;  // of some other call since
  const Status published = pending.publish();
  ASSERT_FALSE(published.has_value());
  EXPECT_THAT(std::string(published.error().message()), HasSubstr(std::strerror(EFBIG)));
  EXPECT_FALSE(fs::exists(folder_ / "a"));
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
  fs::create_symlink("new", folder_ / "to_new");
  EXPECT_FALSE(check_targets({{"--a", fresh}, {"--b", folder_ / "to_new"}}, {}).has_value());
  EXPECT_EQ(check_targets({{"--a", folder_.path()}}, {}).error().code, Errc::io_error);
  EXPECT_EQ(content(old), "x");
}

}  // namespace
}  // namespace terrace
