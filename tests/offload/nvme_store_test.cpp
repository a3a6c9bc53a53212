#include "terrace/offload/nvme_store.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "contract/fuzz.hpp"
#include "core/temporary_folder.hpp"
#include "offload/loop_device.hpp"
#include "offload/stored_pages.hpp"
#include "terrace/offload/aligned_bytes.hpp"

namespace terrace::offload {
namespace {

using testing::HasSubstr;

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
  StoreUsage before;
  {
    const auto store = open().value();
    for (std::uint64_t key = 0; key < count; ++key) ASSERT_TRUE(put(*store, key, 1));
    for (std::uint64_t key = 0; key < count; key += 3) ASSERT_TRUE(put(*store, key, 2));
    for (std::uint64_t key = 1; key < count; key += 3) ASSERT_TRUE(erase(*store, key));
    before = store->usage();
  }
  const auto store = open().value();
  EXPECT_EQ(store->usage(), before);
  for (std::uint64_t key = 0; key < count; ++key) {
    const auto found = get(*store, key);
    ASSERT_EQ(found.has_value(), key % 3 != 1);
    if (!found) continue;
    EXPECT_EQ(*found, content(key, key % 3 == 0 ? 2 : 1));
    bytes += found->size();
  }
  EXPECT_EQ(store->usage().pages, 40U);
  EXPECT_EQ(store->usage().page_bytes, bytes);
  EXPECT_EQ(store->state().degraded, "");
}

TEST_F(NvmeStoreTest, SaysHowItReadsAndWrites) {
  {
    const auto store = open({.contents = "rows", .queue = {.engine = FileEngine::threads}}).value();
    EXPECT_TRUE(store->state().created);
    EXPECT_EQ(store->state().engine, "threads");
    EXPECT_EQ(store->state().registered_bytes, 0U);
  }
  const auto direct = StorageFile::open({.path = path()}).value().direct();
  const auto store = open().value();
  EXPECT_FALSE(store->state().created);
  EXPECT_EQ(store->state().direct, direct);
}

/// The ring of a store that is closed lets go of its file a moment later.
TEST_F(NvmeStoreTest, OnADeviceOpensRightAfterItWasClosed) {
  folder_.write("image", std::string(file_bytes, '\0'));
  const LoopDevice device(folder_ / "image");
  if (!device.is_there()) GTEST_SKIP() << "no loop device for this process";
  for (std::uint64_t round = 0; round < 40; ++round) {
    const auto store =
        NvmeStore::open({.file = {.path = device.path(), .patience = std::chrono::minutes(10)},
                         .contents = "rows",
                         .pages_max = 100});
    ASSERT_TRUE(store) << store.error().message();
    ASSERT_TRUE(put(**store, 1, round));
    EXPECT_EQ(get(**store, 1).value(), content(1, round));
  }
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

TEST_F(NvmeStoreTest, HasPagesOfMorePartsThanItCountsAgain) {
  // The first would have more than 256 parts of 4 KiB.
  const std::vector<std::size_t> sizes{(1 << 20) + 100, 300'000, 4097};
  std::vector<Bytes> contents;
  for (const std::size_t size : sizes) {
    contents.emplace_back(size);
    std::ranges::generate(contents.back(),
                          [rng = Rng(size)]() mutable { return std::byte(rng()); });
  }
  {
    const auto store = open({.contents = "rows", .part_bytes = 4096}).value();
    for (std::size_t key = 0; key < sizes.size(); ++key) {
      ASSERT_TRUE(run_one(*store, PageVerb::put, key, contents[key]));
    }
  }
  const auto store = open().value();  // a file that is there keeps its parts
  for (std::size_t key = 0; key < sizes.size(); ++key) {
    Bytes whole(sizes[key]);
    ASSERT_TRUE(run_one(*store, PageVerb::get, key, whole));
    EXPECT_EQ(whole, contents[key]);
    const auto end = get_part(*store, key, sizes[key] - 4097, 4097);
    ASSERT_TRUE(end);
    EXPECT_TRUE(std::ranges::equal(*end, std::span(contents[key]).last(4097)));
  }
}

TEST_F(NvmeStoreTest, MovesWholePartsToMemoryOfBlocks) {
  const auto store = open({.contents = "rows", .part_bytes = 4096}).value();
  AlignedBytes blocks(4 * StorageFile::alignment);
  Rng rng(1);
  std::ranges::generate(blocks.span(), [&] { return static_cast<std::byte>(rng()); });
  PageRequest whole{.verb = PageVerb::put,
                    .key = {.low = 1},
                    .data = blocks.data(),
                    .bytes = blocks.span().size(),
                    .status = {}};
  run(*store, {&whole, 1});
  AlignedBytes parts(2 * StorageFile::alignment);
  PageRequest some{.verb = PageVerb::get_part,
                   .key = {.low = 1},
                   .data = parts.data(),
                   .bytes = parts.span().size(),
                   .offset = StorageFile::alignment,
                   .status = {}};
  run(*store, {&some, 1});
  ASSERT_TRUE(some.status);
  EXPECT_TRUE(std::ranges::equal(parts.span(), blocks.span().subspan(4096, 8192)));
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
  EXPECT_EQ(store->usage().pages, 3U);
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
  // Files of other programs may begin with zeros.
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

/// Refusals at each depth of open().
std::vector<NvmeStoreOptions> refused_options() {
  std::vector<NvmeStoreOptions> all{{.pages_max = 1 << 20},
                                    {.pages_max = ~std::uint64_t{0}},
                                    {.queue = {.depth = 0}},
                                    {.contents = std::string(513, 'x')}};
  all.push_back({.open_queue = [](const StorageFile&, const FileQueueOptions&) {
    return Result<std::unique_ptr<FileQueue>>(fail(Errc::unsupported, "no queue"));
  }});
  return all;
}

TEST_F(NvmeStoreTest, LeavesNothingWhereItIsRefused) {
  for (const NvmeStoreOptions& options : refused_options()) {
    EXPECT_NE(refusal(options), "");
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
  EXPECT_TRUE(open());
}

TEST_F(NvmeStoreTest, LeavesAnEmptyFileEmptyWhereItIsRefused) {
  folder_.write("pages", "");
  for (const NvmeStoreOptions& options : refused_options()) {
    EXPECT_NE(refusal(options), "");
    EXPECT_EQ(std::filesystem::file_size(path()), 0U);
  }
}

TEST_F(NvmeStoreTest, GivesAFileOfZerosTheSizeThatAnEarlierProcessDidNotEndTo) {
  folder_.write("pages", std::string(64 << 10, '\0'));
  EXPECT_NE(refusal({.pages_max = 1 << 20}), "");
  EXPECT_EQ(std::filesystem::file_size(path()), 64U << 10);
  const auto store = open();
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_EQ(std::filesystem::file_size(path()), file_bytes);
  EXPECT_TRUE(put(**store, 1, 1));
}

TEST_F(NvmeStoreTest, RefusesOptionsThatCannotBe) {
  EXPECT_THAT(refusal({.pages_max = 1 << 20}), HasSubstr("name more bytes, or fewer pages"));
  EXPECT_THAT(refusal({.queue = {.depth = 0}}), HasSubstr("depth 0 is not between 1 and 4094"));
  EXPECT_THAT(refusal({.queue = {.depth = 4095}}), HasSubstr("not between"));
  EXPECT_THAT(refusal({.contents = std::string(513, 'x')}), HasSubstr("at most 512"));
  for (const std::uint64_t bytes : {0U, 2048U, 12288U, 2U << 20}) {
    EXPECT_THAT(refusal({.part_bytes = bytes}), HasSubstr("no power of two from 4096 to 1048576"));
  }
}

/// Each way to take a file away from a store.
const std::map<std::string, std::function<void(const std::string&)>>& losses() {
  namespace fs = std::filesystem;
  static const std::map<std::string, std::function<void(const std::string&)>> all{
      {"removed", [](const std::string& path) { fs::remove(path); }},
      {"renamed", [](const std::string& path) { fs::rename(path, path + ".old"); }},
      {"replaced",
       [](const std::string& path) {
         fs::copy(path, path + ".new");
         fs::rename(path + ".new", path);
       }},
      {"cut", [](const std::string& path) { fs::resize_file(path, file_bytes / 2); }},
      {"cut by little", [](const std::string& path) { fs::resize_file(path, file_bytes - 1); }},
      {"emptied", [](const std::string& path) { fs::resize_file(path, 0); }}};
  return all;
}

TEST_F(NvmeStoreTest, SaysThatNothingIsPutOnceItsFileIsLost) {
  for (const auto& [name, lose] : losses()) {
    SCOPED_TRACE(name);
    const auto store = open({.file = {.patience = patience}, .contents = "rows"}).value();
    ASSERT_TRUE(put(*store, 0, 1));
    lose(path());
    // Enough pages to write in all of the file, its end included.
    std::vector<Bytes> contents;
    std::vector<PageRequest> batch;
    for (std::uint64_t key = 1; key < 99; ++key) {
      contents.emplace_back(file_bytes / 110, std::byte{1});
      batch.push_back(request(PageVerb::put, key, contents.back()));
    }
    run(*store, batch);
    EXPECT_TRUE(
        std::ranges::none_of(batch, [](const auto& each) { return each.status.has_value(); }));
    EXPECT_EQ(put(*store, 0, 2).error().code, Errc::io_error);
    EXPECT_EQ(erase(*store, 0).error().code, Errc::io_error);
    EXPECT_THAT(store->state().degraded, HasSubstr(path()));
    std::filesystem::remove(path());
  }
}

TEST_F(NvmeStoreTest, IsThereForItsOwnProcessAlone) {
  auto store = open().value();
  ASSERT_TRUE(put(*store, 1, 1));
  const pid_t child = ::fork();
  if (child == 0) {
    Bytes bytes = content(1, 2);
    PageRequest one = request(PageVerb::put, 1, bytes);
    const auto ticket = store->submit({&one, 1});
    store->cancel({.number = 1});
    const bool refused = !ticket && ticket.error().code == Errc::unsupported &&
                         store->usage() == StoreUsage{} && !store->state().degraded.empty();
    store.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get(*store, 1).value(), content(1, 1));
  EXPECT_TRUE(put(*store, 1, 3));
  store.reset();
  EXPECT_EQ(get(*open().value(), 1).value(), content(1, 3));
}

/// A child that lives longer than the store keeps nothing of it open.
TEST_F(NvmeStoreTest, IsOpenedAgainThoughAForkedChildLivesOn) {
  auto store = open().value();
  ASSERT_TRUE(put(*store, 1, 1));
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
  store.reset();
  const auto again = open({.file = {.patience = patience}, .contents = "rows"});
  ASSERT_TRUE(again);
  EXPECT_EQ(get(**again, 1).value(), content(1, 1));
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
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
  EXPECT_EQ(store->usage().pages, 20U);
}

/// Puts, gets, parts and cancels of the same few pages by several threads: of whatever is read, all
/// is of one version.
TEST_F(NvmeStoreTest, NeverShowsPartsOfTwoVersions) {
  using Words = std::vector<std::uint64_t>;
  constexpr std::size_t words = 5000;  // ten parts
  const auto store = open({.contents = "rows", .part_bytes = 4096}).value();
  std::atomic<std::uint64_t> version{0};
  const std::uint64_t seed = fuzz_seed(25);
  const std::uint64_t steps = std::min<std::uint64_t>(fuzz_steps() / 20, 200);
  const auto work = [&](std::uint64_t thread) {
    Rng rng(seed, {thread});
    for (std::uint64_t step = 0; step < steps; ++step) {
      std::vector<Words> memory(6, Words(words));
      std::vector<PageRequest> batch;
      for (Words& each : memory) {
        const PageVerb verb = std::array{PageVerb::put, PageVerb::get, PageVerb::get_part,
                                         PageVerb::get_part, PageVerb::erase}[rng.below(5)];
        if (verb == PageVerb::put) std::ranges::fill(each, ++version);
        const std::size_t first = verb == PageVerb::get_part ? rng.below(words) : 0;
        each.resize(verb == PageVerb::get_part ? 1 + rng.below(words - first) : words);
        batch.push_back({.verb = verb,
                         .key = {.low = rng.below(3)},
                         .data = reinterpret_cast<std::byte*>(each.data()),
                         .bytes = each.size() * sizeof(std::uint64_t),
                         .offset = first * sizeof(std::uint64_t),
                         .status = {}});
      }
      const auto priority = rng.below(2) == 0 ? Priority::awaited : Priority::background;
      const StoreTicket ticket = store->submit(batch, {.priority = priority}).value();
      if (rng.below(3) == 0) store->cancel(ticket);
      ASSERT_TRUE(ticket.done.wait(patience));
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (batch[i].status) {
          ASSERT_EQ(std::ranges::count(memory[i], memory[i].front()), std::ssize(memory[i]));
          ASSERT_EQ(memory[i].front() == 0, batch[i].verb == PageVerb::erase);
          continue;
        }
        const Errc code = batch[i].status.error().code;  // no such page, or cancelled
        ASSERT_TRUE(code == Errc::invalid_argument || code == Errc::cancelled);
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->usage().reserved_bytes, 0U);
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
  const auto rounds = std::clamp<std::uint64_t>(fuzz_steps() / 1'000, 10, 200);
  for (std::uint64_t round = 0; round < rounds; ++round) {
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
    const StoreUsage usage = store->usage();
    EXPECT_GE(usage.pages, std::min<std::uint64_t>(last, 10));
    EXPECT_LE(usage.pages, 10U);
    EXPECT_EQ(usage.reserved_bytes, 0U) << "of puts that were under way nothing is left";
  }
}

}  // namespace
}  // namespace terrace::offload
