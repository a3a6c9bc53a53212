// The limits that a container sets, read from files as the kernel shows them.
#include "terrace/offload/container_limits.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/temporary_folder.hpp"

namespace terrace::offload {
namespace {

class ContainerLimitsTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& content) const {
    const std::filesystem::path file = folder_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }
  [[nodiscard]] ContainerLimits read() const { return read_container_limits(folder_.path()); }

  TemporaryFolder folder_;
};

TEST_F(ContainerLimitsTest, TakeTheStrictestOfTheGroupsAround) {
  write("proc/self/cgroup", "0::/pod/app\n");
  write("sys/fs/cgroup/pod/app/memory.max", "max\n");
  write("sys/fs/cgroup/pod/memory.max", "2147483648\n");
  write("sys/fs/cgroup/memory.max", "4294967296\n");
  write("sys/fs/cgroup/pod/app/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  EXPECT_EQ(read().memory_bytes, std::size_t{1} << 31);
  EXPECT_EQ(read().cpus, 1.5);
}

TEST_F(ContainerLimitsTest, AreSeenWhereTheGroupIsTheWholeView) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1048576\n");
  EXPECT_EQ(read().memory_bytes, std::size_t{1} << 20);
  EXPECT_FALSE(read().cpus.has_value());
}

TEST_F(ContainerLimitsTest, AreThoseOfVersionOneToo) {
  write("proc/self/cgroup", "4:memory:/app\n2:cpu,cpuacct:/app\n0::/\n");
  write("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "1073741824\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read().memory_bytes, std::size_t{1} << 30);
  EXPECT_EQ(read().cpus, 0.5);
}

TEST_F(ContainerLimitsTest, AreEmptyWhereNoneIsSet) {
  EXPECT_FALSE(read().memory_bytes.has_value());
  write("proc/self/cgroup", "4:memory:/\nnonsense\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(read().memory_bytes.has_value());
  EXPECT_FALSE(read().cpus.has_value());
}

TEST_F(ContainerLimitsTest, MakeMemoryThatIsUsableLess) {
  const std::size_t machine = usable_memory(folder_.path());
  EXPECT_GT(machine, std::size_t{1} << 26);
  EXPECT_LT(machine, std::size_t{1} << 60);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1048576\n");
  EXPECT_EQ(usable_memory(folder_.path()), std::size_t{1} << 20);
}

}  // namespace
}  // namespace terrace::offload
