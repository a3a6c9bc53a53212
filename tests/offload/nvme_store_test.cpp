#include "terrace/offload/nvme_store.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "contract/fuzz.hpp"
#include "core/temporary_folder.hpp"
#include "offload/disk_image.hpp"
#include "terrace/offload/aligned_bytes.hpp"

namespace terrace::offload {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr Duration patience = std::chrono::minutes(10);
constexpr std::uint64_t file_bytes = 2 << 20;

/// The bytes of a page in version `version`. A page has one size for ever.
Bytes content(std::uint64_t key, std::uint64_t version) {
  Rng rng(version, {key});
  Bytes bytes(1 + Rng(key).below(20'000));
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(rng()); });
  return bytes;
}

PageRequest request(PageVerb verb, std::uint64_t key, Bytes& bytes) {
  return {
      .verb = verb, .key = {.low = key}, .data = bytes.data(), .bytes = bytes.size(), .status = {}};
}

void run(Store& store, std::span<PageRequest> batch) {
  const auto ticket = store.submit(batch);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(store.wait(*ticket, patience));
}

Status run_one(Store& store, PageVerb verb, std::uint64_t key, Bytes& bytes) {
  PageRequest one = request(verb, key, bytes);
  run(store, {&one, 1});
  return one.status;
}
Status put(Store& store, std::uint64_t key, std::uint64_t version) {
  Bytes bytes = content(key, version);
  return run_one(store, PageVerb::put, key, bytes);
}
Status erase(Store& store, std::uint64_t key) {
  Bytes none;
  return run_one(store, PageVerb::erase, key, none);
}
/// Returns what is there, or why nothing is.
Result<Bytes> get(Store& store, std::uint64_t key) {
  Bytes bytes(content(key, 0).size());
  TERRACE_TRY(run_one(store, PageVerb::get, key, bytes));
  return bytes;
}

class NvmeStoreTest : public testing::Test {
 protected:
  Result<std::unique_ptr<NvmeStore>> open(const NvmeStoreOptions& options = {.contents = "rows"}) {
    NvmeStoreOptions all = options;
    all.file.path = path();
    all.file.bytes = file_bytes;
    if (all.pages_max == 0) all.pages_max = 100;
    return NvmeStore::open(all);
  }
  std::string refusal(const NvmeStoreOptions& options = {.contents = "rows"}) {
    const auto store = open(options);
    return store ? std::string() : std::string(store.error().message());
  }
  [[nodiscard]] std::string path() const { return folder_ / "pages"; }
  TemporaryFolder folder_;
};

TEST_F(NvmeStoreTest, HasItsPagesAgain) {
  constexpr std::uint64_t count = 60;
  std::uint64_t bytes = 0;
  {
    const auto store = open().value();
    for (std::uint64_t key = 0; key < count; ++key) ASSERT_TRUE(put(*store, key, 1));
    for (std::uint64_t key = 0; key < count; key += 3) ASSERT_TRUE(put(*store, key, 2));
    for (std::uint64_t key = 1; key < count; key += 3) ASSERT_TRUE(erase(*store, key));
  }
  const auto store = open().value();
  for (std::uint64_t key = 0; key < count; ++key) {
    const auto found = get(*store, key);
    ASSERT_EQ(found.has_value(), key % 3 != 1);
    if (!found) continue;
    EXPECT_EQ(*found, content(key, key % 3 == 0 ? 2 : 1));
    bytes += found->size();
  }
  EXPECT_EQ(store->state().pages, 40U);
  EXPECT_EQ(store->state().page_bytes, bytes);
  EXPECT_EQ(store->state().degraded, "");
}

TEST_F(NvmeStoreTest, KeepsMoreChangesThanItsJournalHolds) {
  constexpr std::uint64_t changes = 300;  // each a block of a journal of 64
  {
    const auto store = open().value();
    for (std::uint64_t i = 0; i < changes; ++i) ASSERT_TRUE(put(*store, i % 10, i / 10));
  }
  const auto store = open().value();
  for (std::uint64_t key = 0; key < 10; ++key) {
    EXPECT_EQ(get(*store, key).value(), content(key, changes / 10 - 1));
  }
}

TEST_F(NvmeStoreTest, MovesPagesOfBlocksAndOthersAlike) {
  const auto store = open().value();
  AlignedBytes blocks(2 * StorageFile::alignment);
  Rng rng(1);
  std::ranges::generate(blocks.span(), [&] { return static_cast<std::byte>(rng()); });
  PageRequest whole{.verb = PageVerb::put,
                    .key = {.low = 1},
                    .data = blocks.data(),
                    .bytes = blocks.span().size(),
                    .status = {}};
  run(*store, {&whole, 1});
  ASSERT_TRUE(whole.status);
  Bytes shifted(blocks.span().size() + 1);
  PageRequest other = whole;
  other.verb = PageVerb::get;
  other.data = shifted.data() + 1;
  run(*store, {&other, 1});
  ASSERT_TRUE(other.status);
  EXPECT_TRUE(std::ranges::equal(blocks.span(), std::span(shifted).subspan(1)));
}

TEST_F(NvmeStoreTest, RefusesAPageThatDoesNotFitAndKeepsTheOneThere) {
  const auto store = open().value();
  ASSERT_TRUE(put(*store, 1, 1));
  Bytes large(file_bytes);
  EXPECT_EQ(run_one(*store, PageVerb::put, 1, large).error().code, Errc::out_of_memory);
  EXPECT_EQ(get(*store, 1).value(), content(1, 1));
  Bytes none;
  EXPECT_EQ(run_one(*store, PageVerb::put, 2, none).error().code, Errc::invalid_argument);
}

TEST_F(NvmeStoreTest, TakesNoMorePagesThanItsDirectoryHolds) {
  const auto store = open({.pages_max = 3}).value();
  std::vector<Bytes> contents;
  std::vector<PageRequest> batch;
  for (std::uint64_t key = 0; key < 5; ++key) contents.push_back(content(key, 1));
  for (std::uint64_t key = 0; key < 5; ++key) {
    batch.push_back(request(PageVerb::put, key, contents[key]));
  }
  run(*store, batch);
  EXPECT_EQ(std::ranges::count_if(batch, [](const auto& one) { return one.status.has_value(); }),
            3);
  EXPECT_EQ(store->state().pages, 3U);
  EXPECT_TRUE(put(*store, 0, 2));  // one that is there
  ASSERT_TRUE(erase(*store, 0));
  EXPECT_TRUE(put(*store, 4, 1));
}

TEST_F(NvmeStoreTest, UsesTheRoomOfErasedPagesAgain) {
  const auto store = open().value();
  for (std::uint64_t version = 0; version < 300; ++version) {
    ASSERT_TRUE(put(*store, version, 1)) << version;
    if (version < 20) continue;
    ASSERT_TRUE(erase(*store, version - 20));
  }
}

TEST_F(NvmeStoreTest, IsOpenOnceAndOfOneContent) {
  {
    const auto store = open().value();
    EXPECT_THAT(refusal({.file = {.patience = Duration{}}}),
                HasSubstr("another process has it open"));
    ASSERT_TRUE(put(*store, 1, 1));
  }
  EXPECT_THAT(refusal({.contents = "other rows"}), HasSubstr("holds pages of rows, not of other"));
  EXPECT_TRUE(get(*open().value(), 1));
}

TEST_F(NvmeStoreTest, LeavesAFileThatIsNoContainerAsItIs) {
  // Others' files may begin with zeros.
  for (const std::size_t zeros : {std::size_t{0}, std::size_t{8} << 10, std::size_t{64} << 10}) {
    const std::string text = std::string(zeros, '\0') + std::string(2 << 20, 'x');
    folder_.write("pages", text);
    EXPECT_THAT(refusal(), HasSubstr("is no container"));
    std::ifstream stream(path());
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), text);
  }
}

TEST_F(NvmeStoreTest, TakesAFileThatAnEarlierProcessHadJustMade) {
  folder_.write("pages", "");
  EXPECT_TRUE(put(*open().value(), 1, 1));
  EXPECT_EQ(get(*open().value(), 1).value(), content(1, 1));
}

TEST_F(NvmeStoreTest, RefusesOptionsThatCannotBe) {
  EXPECT_THAT(refusal({.pages_max = 1 << 20}), HasSubstr("name more bytes, or fewer pages"));
  EXPECT_THAT(refusal({.queue = {.depth = 0}}), HasSubstr("depth 0 is not between 1 and 4094"));
  EXPECT_THAT(refusal({.queue = {.depth = 4095}}), HasSubstr("not between"));
  EXPECT_THAT(refusal({.contents = std::string(513, 'x')}), HasSubstr("at most 512"));
}

TEST_F(NvmeStoreTest, ServesManyThreads) {
  const auto store = open().value();
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t version = 1; version < 30; ++version) {
        const std::uint64_t key = thread * 100 + version % 5;
        EXPECT_TRUE(put(*store, key, version));
        EXPECT_EQ(get(*store, key).value_or(Bytes()), content(key, version));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->state().pages, 20U);
}

/// A process that puts versions 1, 2, ... of ten pages, and says which it has put, until it is
/// killed.
class PuttingProcess {
 public:
  explicit PuttingProcess(const std::function<std::unique_ptr<NvmeStore>()>& open) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    process_ = ::fork();
    if (process_ == 0) put_for_ever(open, ends[1]);
    ::close(ends[1]);
    from_ = ends[0];
  }
  PuttingProcess(const PuttingProcess&) = delete;
  PuttingProcess& operator=(const PuttingProcess&) = delete;
  ~PuttingProcess() { ::close(from_); }

  /// Waits for so many puts, kills it, and returns the last version it has said.
  [[nodiscard]] std::uint64_t kill_after(std::uint64_t puts) const {
    std::uint64_t last = 0;
    std::uint64_t version = 0;
    while (last < puts && ::read(from_, &version, sizeof version) == sizeof version) last = version;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    while (::read(from_, &version, sizeof version) == sizeof version) last = version;
    return last;
  }

 private:
  [[noreturn]] static void put_for_ever(const std::function<std::unique_ptr<NvmeStore>()>& open,
                                        int to) {
    const auto store = open();
    for (std::uint64_t version = 1;; ++version) {
      if (!put(*store, version % 10, version)) ::_exit(1);
      if (::write(to, &version, sizeof version) != sizeof version) ::_exit(1);
    }
  }

  pid_t process_ = 0;
  int from_ = -1;
};

TEST_F(NvmeStoreTest, HasWhatWasPutBeforeItsProcessWasKilled) {
  const std::uint64_t seed = fuzz_seed(9);
  Rng rng(seed);
  for (std::uint64_t round = 0; round < 10; ++round) {
    SCOPED_TRACE(replay(seed, round));
    const std::uint64_t last =
        PuttingProcess([this] { return open().value(); }).kill_after(1 + rng.below(300));
    ASSERT_GT(last, 0U);
    const auto store = open({.file = {.patience = patience}, .contents = "rows"}).value();
    for (std::uint64_t version = last > 10 ? last - 9 : 1; version <= last; ++version) {
      const Bytes found = get(*store, version % 10).value_or(Bytes());
      // The next version of one page may have been put and not yet said.
      EXPECT_TRUE(found == content(version % 10, version) ||
                  (version + 10 == last + 1 && found == content(version % 10, last + 1)))
          << version << " of " << last;
    }
  }
}

/// Over a disk in memory that can be damaged.
class NvmeImageTest : public NvmeStoreTest {
 protected:
  static constexpr std::uint64_t pages_max = 100;

  std::unique_ptr<NvmeStore> open_image() {
    return NvmeStore::open({.file = {.path = path(), .bytes = file_bytes},
                            .pages_max = pages_max,
                            .queue = {.depth = 6, .patience = std::chrono::seconds(1)},
                            .open_queue =
                                [this](const StorageFile& file, const FileQueueOptions& options) {
                                  return Result<std::unique_ptr<FileQueue>>(
                                      std::make_unique<ImageQueue>(file, options, image_));
                                }})
        .value();
  }
  DiskImage image_{file_bytes, fuzz_seed(3)};
};

/// Whatever bit of the file flips: a page is what was written, or none.
TEST_F(NvmeImageTest, NeverTakesADamagedPageForAWholeOne) {
  constexpr std::uint64_t count = 20;
  {
    const auto store = open_image();
    for (std::uint64_t key = 0; key < count; ++key) ASSERT_TRUE(put(*store, key, 1));
    for (std::uint64_t key = 0; key < count; key += 4) ASSERT_TRUE(erase(*store, key));
    for (std::uint64_t key = 0; key < count; key += 2) ASSERT_TRUE(put(*store, key, 2));
  }
  const std::uint64_t seed = fuzz_seed(5);
  Rng rng(seed);
  const std::vector<std::byte> whole = image_.copy();
  std::vector<std::size_t> used;  // others say nothing
  for (std::size_t at = 0; at < whole.size(); ++at) {
    if (whole[at] != std::byte{}) used.push_back(at);
  }
  const std::uint64_t steps = std::min<std::uint64_t>(fuzz_steps() / 10, 400);
  std::size_t lost = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(replay(seed, step));
    // Half of the flips in the directory, which is small.
    const std::size_t below = rng.below(2) == 0 ? std::min<std::size_t>(used.size(), 5000)  //
                                                : used.size();
    const std::size_t bit = used[rng.below(below)] * 8 + rng.below(8);
    image_.flip(bit);
    std::size_t missing = 0;
    std::size_t corrupt = 0;
    auto store = open_image();
    for (std::uint64_t key = 0; key < count; ++key) {
      const auto found = get(*store, key);
      if (found) {
        ASSERT_EQ(*found, content(key, key % 2 == 0 ? 2 : 1));
      } else {
        ++missing;
        if (found.error().code == Errc::corrupt) ++corrupt;
        EXPECT_FALSE(get(*store, key));
      }
    }
    ASSERT_EQ(store->state().corrupt, corrupt);
    lost += missing;
    store.reset();
    image_.restore(whole);
  }
  EXPECT_GT(lost, 0U);
}

/// One superblock after the other is damaged, and mended when the file is opened in between.
TEST_F(NvmeImageTest, MendsTheCopyOfItsSuperblock) {
  ASSERT_TRUE(put(*open_image(), 1, 1));
  for (const std::size_t copy : {0U, 1U, 0U, 1U}) {
    image_.flip((copy * StorageFile::alignment + 20) * 8);
    EXPECT_EQ(get(*open_image(), 1).value(), content(1, 1));
  }
}

/// Lives that end in the middle of a write. Pages that were put before are there; those under way
/// may be, whole.
TEST_F(NvmeImageTest, HasAfterAnyEndWhatWasPutBefore) {
  const std::uint64_t seed = fuzz_seed(7);
  const std::uint64_t lives = std::min<std::uint64_t>(fuzz_steps() / 20, 300);
  Rng rng(seed);
  constexpr std::uint64_t keys = 30;
  using Version = std::uint64_t;  // 0 = no page
  std::map<std::uint64_t, std::vector<Version>> allowed;
  for (std::uint64_t key = 0; key < keys; ++key) allowed[key] = {0};
  Version next = 1;
  for (std::uint64_t life = 0; life < lives; ++life) {
    SCOPED_TRACE(replay(seed, life));
    if (rng.below(3) == 0) {  // a life that ends while the file is opened, or a moment later
      image_.end_with_write(1 + rng.below(6));
      open_image().reset();
      image_.revive();
    }
    auto store = open_image();
    for (auto& [key, versions] : allowed) {
      const auto found = get(*store, key);
      const auto version = std::ranges::find_if(versions, [&](Version each) {
        return found ? each != 0 && *found == content(key, each) : each == 0;
      });
      ASSERT_NE(version, versions.end())
          << "page " << key << (found ? "" : found.error().message());
      versions = {*version};
    }
    image_.end_with_write(1 + rng.below(120));
    while (!image_.has_ended()) {
      std::vector<Bytes> contents;
      std::vector<PageRequest> batch;
      std::vector<Version> versions;
      const std::size_t count = 1 + rng.below(10);
      contents.reserve(count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t key = rng.below(keys);
        const bool puts = rng.below(4) != 0;
        versions.push_back(puts ? next++ : 0);
        contents.push_back(puts ? content(key, versions.back()) : Bytes());
        batch.push_back(request(puts ? PageVerb::put : PageVerb::erase, key, contents.back()));
      }
      run(*store, batch);
      const bool is_sure = !image_.has_ended();
      for (std::size_t i = 0; i < count; ++i) {
        auto& versions_of_page = allowed[batch[i].key.low];
        if (!batch[i].status) continue;  // no such page, or no room
        if (is_sure) versions_of_page.clear();
        versions_of_page.push_back(versions[i]);
      }
    }
    store.reset();
    image_.revive();
  }
}

TEST_F(NvmeImageTest, GivesUpWhatHasNotBegunAndEndsWhatHas) {
  const auto store = open_image();
  ASSERT_TRUE(put(*store, 1, 1));
  image_.hold(true);
  std::vector<Bytes> targets(20, Bytes(content(1, 1).size()));
  std::vector<PageRequest> batch;
  for (Bytes& target : targets) batch.push_back(request(PageVerb::get, 1, target));
  const StoreTicket ticket = store->submit(batch).value();
  const Status waited = store->wait(ticket, std::chrono::milliseconds(5));
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, Errc::not_ready);
  EXPECT_FALSE(store->poll(ticket).value());
  image_.hold(false);
  ASSERT_TRUE(store->wait(ticket, patience));
  EXPECT_TRUE(batch[0].status);
  EXPECT_EQ(targets[0], content(1, 1));
  for (std::size_t i = 1; i < batch.size(); ++i) {
    ASSERT_FALSE(batch[i].status);
    EXPECT_EQ(batch[i].status.error().code, Errc::cancelled);
  }
}

TEST_F(NvmeImageTest, WritesNoMoreAfterAnErrorInWritingAndReadsOn) {
  const auto store = open_image();
  ASSERT_TRUE(put(*store, 1, 1));
  image_.fail_with(0, ENOSPC);
  EXPECT_EQ(put(*store, 2, 1).error().code, Errc::io_error);
  image_.fail_with(0, 0);
  const Status refused = put(*store, 3, 1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(std::string(refused.error().message()),
              HasSubstr("writes no more: the disk says 28"));
  EXPECT_EQ(erase(*store, 1).error().code, Errc::io_error);
  EXPECT_EQ(get(*store, 1).value(), content(1, 1));
  EXPECT_THAT(store->state().degraded, HasSubstr("28"));
  // One waits for the other's key.
  Bytes none;
  Bytes target(content(1, 1).size());
  std::vector<PageRequest> batch{request(PageVerb::erase, 1, none),
                                 request(PageVerb::get, 1, target)};
  run(*store, batch);
  EXPECT_EQ(batch[0].status.error().code, Errc::io_error);
  EXPECT_EQ(target, content(1, 1));
}

TEST_F(NvmeImageTest, SaysOfAPageThatItCannotBeRead) {
  const auto store = open_image();
  ASSERT_TRUE(put(*store, 1, 1));
  image_.fail_with(EIO, 0);
  EXPECT_EQ(get(*store, 1).error().code, Errc::io_error);
  image_.fail_with(0, 0);
  EXPECT_EQ(get(*store, 1).value(), content(1, 1));
}

TEST_F(NvmeImageTest, EndsWhileItsDiskStandsStill) {
  auto store = open_image();
  ASSERT_TRUE(put(*store, 1, 1));
  image_.hold(true);
  Bytes target(content(1, 1).size());
  std::vector<PageRequest> batch{request(PageVerb::get, 1, target)};
  ASSERT_TRUE(store->submit(batch));
  store.reset();
}

}  // namespace
}  // namespace terrace::offload
