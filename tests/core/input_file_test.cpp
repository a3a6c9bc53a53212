#include "terrace/core/input_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "core/temporary_folder.hpp"

namespace terrace {
namespace {

using ::testing::HasSubstr;

TEST(InputFile, ReadsNoFurtherThanItIsAsked) {
  const TemporaryFolder folder;
  const std::string large(std::size_t{3} << 20, 'x');  // more than is read at a time
  auto file = InputFile::open(folder.write("a", "begin" + large)).value();
  EXPECT_EQ(file.read_up_to(5).value(), "begin");
  EXPECT_EQ(file.read_bytes(), 5U);
  EXPECT_EQ(file.known_bytes(), large.size() + 5);
  EXPECT_EQ(file.share(file.known_bytes()), 1.0);
  EXPECT_EQ(file.read_up_to(large.size() + 100).value(), large);
  EXPECT_EQ(file.read_up_to(1).value(), "");
}

TEST(InputFile, KnowsOfADeviceHowMuchWasReadAlone) {
  auto file = InputFile::open("/dev/zero").value();
  EXPECT_EQ(file.read_up_to(7).value(), std::string(7, '\0'));
  EXPECT_EQ(file.known_bytes(), 7U);
  EXPECT_EQ(file.share(7), std::nullopt);
}

TEST(InputFile, TellsThatItWasCutWhileItWasRead) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "0123456789");
  auto file = InputFile::open(path).value();
  ASSERT_TRUE(file.read_up_to(2).has_value());
  std::filesystem::resize_file(path, 4);
  const auto rest = file.read_whole(100);
  ASSERT_FALSE(rest.has_value());
  EXPECT_EQ(rest.error().code, Errc::io_error);
  EXPECT_THAT(std::string(rest.error().message()), HasSubstr(path + ": was cut from 10 to 4"));
}

/// Stands in for standard input while it lives.
class StandardInput {
 public:
  explicit StandardInput(int descriptor) : before_(::dup(STDIN_FILENO)) {
    ::dup2(descriptor, STDIN_FILENO);
    ::close(descriptor);
  }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;
  ~StandardInput() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }

 private:
  int before_;
};

TEST(InputFile, TakesStandardInputFromWhereOthersStoppedAndLeavesItOpen) {
  const TemporaryFolder folder;
  const int descriptor = ::open(folder.write("a", "0123456789").c_str(), O_RDONLY);
  ASSERT_EQ(::lseek(descriptor, 3, SEEK_SET), 3);
  const StandardInput standard(descriptor);
  {
    auto file = InputFile::open_named("-").value();
    EXPECT_EQ(file.name(), "standard input");
    EXPECT_EQ(file.known_bytes(), 7U);
    EXPECT_EQ(file.read_up_to(4).value(), "3456");
  }
  EXPECT_EQ(InputFile::open_named("-")->read_whole(3).value(), "789");
  EXPECT_FALSE(InputFile::open("-").has_value()) << "a file of that name";
}

}  // namespace
}  // namespace terrace
