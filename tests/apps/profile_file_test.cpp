// Sections of a profile that several commands write.
#include "profile_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/temporary_folder.hpp"

namespace terrace::apps {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const Machine here{.cpu = "a CPU", .isa = "avx2"};

TEST(ProfileFile, LosesNoSectionOfCommandsThatEndTogether) {
  const TemporaryFolder folder;
  const std::string file = folder / "here.yaml";
  constexpr int commands = 16;
  std::vector<pid_t> children;
  for (int i = 0; i < commands; ++i) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    bool written = true;
    for (int round = 0; round < 10 && written; ++round) {
      const auto put = [&](MachineProfile& profile) {
        profile.host[fmt::format("row_{}_{}", i, round)] = 1e9;
      };
      written = extend_profile(file, here, 60s, put).has_value();
    }
    ::_exit(written ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const auto profile = MachineProfile::read(file);
  ASSERT_TRUE(profile.has_value()) << profile.error().message();
  EXPECT_EQ(profile->host.size(), 160U);
}

TEST(ProfileFile, WaitsNoLongerThanItIsTold) {
  const TemporaryFolder folder;
  const int held = ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  const std::string file = folder / "here.yaml";
  const Status written = extend_profile(file, here, 20ms, [](MachineProfile&) {});
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, Errc::not_ready);
  EXPECT_THAT(std::string(written.error().message()), HasSubstr("another command"));
  ::close(held);
  EXPECT_TRUE(extend_profile(file, here, 20ms, [](MachineProfile&) {}).has_value());
}

TEST(ProfileFile, KeepsAFileThatIsNoProfile) {
  const TemporaryFolder folder;
  const std::string file = folder.write("notes", "nothing: of machines\n");
  EXPECT_FALSE(extend_profile(file, here, 1s, [](MachineProfile&) {}).has_value());
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  EXPECT_EQ(line, "nothing: of machines");
}

}  // namespace
}  // namespace terrace::apps
