#include "memory/memory_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace terrace::node {
namespace {

constexpr std::uint64_t bytes = 8192;

TEST(MemoryFile, OthersSeeWhatItsOwnerWritesAndCannotWriteThemselves) {
  MemoryFile file = MemoryFile::create({.name = "test", .bytes = bytes}).value();
  const Mapping own = file.map().value();
  ASSERT_TRUE(file.forbid_other_writers());
  const Mapping other = Mapping::of(file.descriptor(), bytes, false).value();
  own.bytes()[7] = std::byte{42};
  EXPECT_EQ(other.bytes()[7], std::byte{42});
  EXPECT_NE(::mprotect(other.bytes().data(), bytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_FALSE(Mapping::of(file.descriptor(), bytes, true));
}

/// A process of the same user may open the file anew, and may change its mode.
TEST(MemoryFile, OpeningItAnewGivesNoWayToWrite) {
  MemoryFile file = MemoryFile::create({.name = "test", .bytes = bytes}).value();
  const Mapping own = file.map().value();
  ASSERT_TRUE(file.forbid_other_writers());
  const std::string path = fmt::format("/proc/self/fd/{}", file.descriptor().get());
  ::fchmod(file.descriptor().get(), 0777);
  const Descriptor again(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(again.is_open());
  EXPECT_EQ(::write(again.get(), "x", 1), -1);
  EXPECT_EQ(::ftruncate(again.get(), 0), -1);
  EXPECT_NE(::fcntl(again.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_FALSE(Mapping::of(again, bytes, true));
  const Mapping reading = Mapping::of(again, bytes, false).value();
  EXPECT_NE(::mprotect(reading.bytes().data(), bytes, PROT_READ | PROT_WRITE), 0);
}

TEST(MemoryFile, RefusesFilesThatCouldShrinkUnderAReader) {
  const Descriptor file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), bytes), 0);
  EXPECT_FALSE(Mapping::of(file, bytes, false));
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(Mapping::of(file, 2 * bytes, false));
  EXPECT_TRUE(Mapping::of(file, bytes, false));
}

}  // namespace
}  // namespace terrace::node
