#include "terrace/offload/scratch_store.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "terrace/offload/nvme_store.hpp"

namespace terrace::offload {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t bytes = 4 << 20;

class ScratchStore : public ::testing::Test {
 protected:
  ScratchStore() {
    fs::create_directories(folder_);
    fs::remove(file());
  }
  ~ScratchStore() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string file() const { return (folder_ / "rows").string(); }

  /// Puts a page, and returns whether it is there then.
  static bool takes(Store& store) {
    std::vector<std::byte> page(4096, std::byte{7});
    PageRequest put{
        .verb = PageVerb::put, .key = {1, 2}, .data = page.data(), .bytes = page.size()};
    const StoreTicket ticket = store.submit({&put, 1}).value();
    return ticket.done.wait(std::chrono::seconds{60}).has_value() && put.status.has_value();
  }

 private:
  fs::path folder_ =
      fs::path(::testing::TempDir()) /
      ("scratch_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(ScratchStore, RemovesItsFileWhenItGoes) {
  {
    const auto store = open_scratch_store({.path = file(), .bytes = bytes}).value();
    EXPECT_TRUE(takes(*store));
    EXPECT_TRUE(fs::exists(file()));
  }
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(ScratchStore, HasNoPageOfAProcessThatIsGone) {
  const std::string copy = file() + ".left";
  {
    const auto store = open_scratch_store({.path = file(), .bytes = bytes}).value();
    EXPECT_TRUE(takes(*store));
    EXPECT_EQ(store->usage().pages, 1U);
    fs::copy_file(file(), copy);
  }
  fs::rename(copy, file());  // as if the process had been killed
  const auto store = open_scratch_store({.path = file(), .bytes = bytes}).value();
  EXPECT_EQ(store->usage().pages, 0U);
  EXPECT_TRUE(takes(*store));
}

TEST_F(ScratchStore, LeavesOtherFilesAsTheyAre) {
  std::ofstream(file()) << "somebody's text";
  EXPECT_FALSE(open_scratch_store({.path = file(), .bytes = bytes}).has_value());
  EXPECT_EQ(fs::file_size(file()), 15U);
  fs::remove(file());
  {
    const auto others =
        NvmeStore::open({.file = {.path = file(), .bytes = bytes}, .contents = "x"});
    ASSERT_TRUE(others.has_value());
  }
  const auto refused = open_scratch_store({.path = file(), .bytes = bytes});
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(fs::exists(file()));
  EXPECT_FALSE(open_scratch_store({.path = ::testing::TempDir(), .bytes = bytes}).has_value());
}

TEST_F(ScratchStore, NeedsASize) {
  const auto refused = open_scratch_store({.path = file()});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_FALSE(fs::exists(file()));
}

}  // namespace
}  // namespace terrace::offload
