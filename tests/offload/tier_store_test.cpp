#include "terrace/offload/tier_store.hpp"

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

class TierStore : public ::testing::Test {
 protected:
  TierStore() {
    fs::create_directories(folder_);
    fs::remove(file());
  }
  ~TierStore() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string file() const { return (folder_ / "rows").string(); }

  static constexpr PageKey scratch{1, 2};
  static constexpr PageKey saved{scratch_owners, 2};

  /// Carries a request out, and returns whether it ended well.
  static bool does(Store& store, PageRequest request) {
    const StoreTicket ticket = store.submit({&request, 1}).value();
    return ticket.done.wait(std::chrono::seconds{60}).has_value() && request.status.has_value();
  }
  /// Puts a page, and returns whether it is there then.
  static bool takes(Store& store, PageKey key = scratch) {
    std::vector<std::byte> page(4096, std::byte{7});
    return does(store, {.verb = PageVerb::put, .key = key, .data = page.data(), .bytes = 4096});
  }
  static bool has(Store& store, PageKey key) {
    std::vector<std::byte> page(4096);
    return does(store, {.verb = PageVerb::get, .key = key, .data = page.data(), .bytes = 4096}) &&
           page.back() == std::byte{7};
  }

 private:
  fs::path folder_ =
      fs::path(::testing::TempDir()) /
      ("scratch_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(TierStore, RemovesItsFileWhenItGoes) {
  {
    const auto store = open_tier_store({.path = file(), .bytes = bytes}).value();
    EXPECT_TRUE(takes(*store));
    EXPECT_TRUE(fs::exists(file()));
  }
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(TierStore, HasNoPageOfAProcessThatIsGone) {
  const std::string copy = file() + ".left";
  {
    const auto store = open_tier_store({.path = file(), .bytes = bytes}).value();
    EXPECT_TRUE(takes(*store));
    EXPECT_EQ(store->usage().pages, 1U);
    fs::copy_file(file(), copy);
  }
  fs::rename(copy, file());  // as if the process had been killed
  const auto store = open_tier_store({.path = file(), .bytes = bytes}).value();
  EXPECT_EQ(store->usage().pages, 0U);
  EXPECT_TRUE(takes(*store));
}

TEST_F(TierStore, KeepsSavedPagesAndNoScratch) {
  const std::string copy = file() + ".left";
  {
    const auto store = open_tier_store({.path = file(), .bytes = bytes}).value();
    EXPECT_TRUE(takes(*store, scratch));
    EXPECT_TRUE(takes(*store, saved));
    fs::copy_file(file(), copy);
  }
  EXPECT_TRUE(fs::exists(file()));
  fs::rename(copy, file());
  {
    // The size stays that of the pages that are there.
    const auto store = open_tier_store({.path = file(), .bytes = 2 * bytes}).value();
    EXPECT_EQ(store->usage().pages, 1U);
    EXPECT_EQ(fs::file_size(file()), bytes);
    EXPECT_TRUE(has(*store, saved));
    EXPECT_FALSE(has(*store, scratch));
    EXPECT_TRUE(does(*store, {.verb = PageVerb::erase, .key = saved}));
  }
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(TierStore, NamesTheSavedPagesToTheCallThatOpensTheFile) {
  std::vector<PageKey> named;
  int calls = 0;
  const TierStoreOptions options{
      .path = file(), .bytes = bytes, .on_opened = [&](std::span<const PageKey> saved) {
        ++calls;
        named.assign(saved.begin(), saved.end());
      }};
  {
    const auto store = open_tier_store(options).value();
    EXPECT_TRUE(takes(*store, scratch));
    EXPECT_TRUE(takes(*store, saved));
    EXPECT_EQ(open_tier_store(options).value(), store);
    EXPECT_EQ(calls, 1) << "it was open already";
    EXPECT_THAT(named, ::testing::IsEmpty());
  }
  const auto store = open_tier_store(options).value();
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(named, ::testing::ElementsAre(saved));
}

/// Overwrites both copies of the newest pair of blocks of the journal, which begins behind the two
/// superblocks.
void damage_newest_records(const std::string& path) {
  constexpr std::size_t pair = 2 * StorageFile::alignment;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string content(pair, '\0');
  std::streamoff newest = 0;
  for (std::streamoff at = pair; newest + static_cast<std::streamoff>(pair) >= at; at += pair) {
    file.seekg(at);
    file.read(content.data(), static_cast<std::streamsize>(pair));
    if (content.find_first_not_of('\0') != std::string::npos) newest = at;
  }
  ASSERT_GT(newest, 0);
  file.seekp(newest);
  file << std::string(pair, 'x');
}

TEST_F(TierStore, SaysThatItHasLostAllPages) {
  {
    const auto store = open_tier_store({.path = file(), .bytes = bytes}).value();
    EXPECT_TRUE(takes(*store, saved));
  }
  damage_newest_records(file());
  const auto store = open_tier_store({.path = file(), .bytes = bytes}).value();
  EXPECT_EQ(store->usage().pages, 0U);
  EXPECT_GE(store->health().lost, 1U);
  EXPECT_TRUE(takes(*store, saved));
  EXPECT_TRUE(has(*store, saved));
}

TEST_F(TierStore, TakesTheSizeThatIsAskedForWhereItHasNoPages) {
  const std::string copy = file() + ".left";
  {
    const auto store = open_tier_store({.path = file(), .bytes = bytes}).value();
    EXPECT_TRUE(takes(*store));
    fs::copy_file(file(), copy);
  }
  fs::rename(copy, file());
  const auto store = open_tier_store({.path = file(), .bytes = 2 * bytes}).value();
  EXPECT_EQ(fs::file_size(file()), 2 * bytes);
  EXPECT_EQ(store->usage().pages, 0U);
}

TEST_F(TierStore, LeavesOtherFilesAsTheyAre) {
  std::ofstream(file()) << "somebody's text";
  EXPECT_FALSE(open_tier_store({.path = file(), .bytes = bytes}).has_value());
  EXPECT_EQ(fs::file_size(file()), 15U);
  fs::remove(file());
  {
    const auto others =
        NvmeStore::open({.file = {.path = file(), .bytes = bytes}, .contents = "x"});
    ASSERT_TRUE(others.has_value());
  }
  const auto refused = open_tier_store({.path = file(), .bytes = bytes});
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(fs::exists(file()));
  EXPECT_FALSE(open_tier_store({.path = ::testing::TempDir(), .bytes = bytes}).has_value());
}

TEST_F(TierStore, NeedsASize) {
  const auto refused = open_tier_store({.path = file()});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_FALSE(fs::exists(file()));
}

}  // namespace
}  // namespace terrace::offload
