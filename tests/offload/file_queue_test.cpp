#include "terrace/offload/file_queue.hpp"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include "contract/fuzz.hpp"
#include "core/temporary_folder.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/aligned_bytes.hpp"

namespace terrace::offload {
namespace {

using testing::HasSubstr;

constexpr std::size_t block = StorageFile::alignment;
constexpr std::size_t file_blocks = 64;
constexpr Duration patience = std::chrono::minutes(10);

FileTransfer read(std::uint64_t offset, std::span<std::byte> into, std::uint64_t tag = 0) {
  return {.direction = FileTransfer::Direction::read,
          .data = into.data(),
          .bytes = into.size(),
          .offset = offset,
          .tag = tag};
}
FileTransfer write(std::uint64_t offset, std::span<std::byte> from, std::uint64_t tag = 0) {
  FileTransfer transfer = read(offset, from, tag);
  transfer.direction = FileTransfer::Direction::write;
  return transfer;
}

struct QueueCase {
  std::string name;
  FileEngine engine;
  DirectIo direct = DirectIo::where_possible;
  bool registers = false;  ///< the memory of transfers
};

class EachFileQueue : public testing::TestWithParam<QueueCase> {
 protected:
  static constexpr std::size_t depth = 8;

  void SetUp() override {
    file_.emplace(
        StorageFile::open(
            {.path = folder_ / "rows", .bytes = file_blocks * block, .direct = GetParam().direct})
            .value());
    FileQueueOptions options{.engine = GetParam().engine, .depth = depth};
    if (GetParam().registers) options.memory = {memory_.span()};
    queue_ = FileQueue::open(*file_, options).value();
  }

  /// Memory of a transfer of `blocks` under way.
  [[nodiscard]] std::span<std::byte> memory(std::size_t place, std::size_t blocks = 1) const {
    return memory_.span().subspan(place * 4 * block, blocks * block);
  }

  /// Waits for `count` transfers.
  std::vector<FinishedTransfer> reap(std::size_t count) {
    std::vector<FinishedTransfer> all(count);
    std::size_t done = 0;
    while (done < count) {
      done += queue_->reap(std::span(all).subspan(done), patience);
    }
    return all;
  }

  Status run(const FileTransfer& transfer) {
    TERRACE_TRY(queue_->submit({&transfer, 1}));
    return reap(1)[0].status;
  }

  TemporaryFolder folder_;
  AlignedBytes memory_{depth * 4 * block};
  std::optional<StorageFile> file_;
  std::unique_ptr<FileQueue> queue_;
};

TEST_P(EachFileQueue, ReadsWhatWasWritten) {
  std::ranges::fill(memory(0, 2), std::byte{7});
  ASSERT_TRUE(run(write(3 * block, memory(0, 2))));
  ASSERT_TRUE(run(read(4 * block, memory(1, 2))));
  EXPECT_THAT(memory(1, 1), testing::Each(std::byte{7}));
  EXPECT_THAT(memory(1, 2).subspan(block), testing::Each(std::byte{0}));
}

/// Random transfers of blocks that no other one under way touches, against an array of bytes.
TEST_P(EachFileQueue, IsAFileUnderRandomTransfers) {
  const std::uint64_t seed = fuzz_seed(11);
  const std::uint64_t steps = std::min<std::uint64_t>(fuzz_steps(), 2000);
  Rng rng(seed);
  std::array<std::byte, file_blocks> model{};
  struct UnderWay {
    bool is_read = false;
    std::size_t first = 0, blocks = 0;  // 0 = no transfer
  };
  std::array<UnderWay, depth> under_way;
  const auto is_free = [&](std::size_t first, std::size_t blocks) {
    return std::ranges::none_of(under_way, [&](const UnderWay& each) {
      return first < each.first + each.blocks && each.first < first + blocks;
    });
  };
  const auto finish = [&](const FinishedTransfer& finished) {
    ASSERT_TRUE(finished.status) << finished.status.error().message();
    const UnderWay done = std::exchange(under_way[finished.tag], {});
    for (std::size_t i = 0; done.is_read && i < done.blocks; ++i) {
      const auto bytes = memory(finished.tag, done.blocks).subspan(i * block, block);
      const std::byte value = model[done.first + i];
      ASSERT_TRUE(std::ranges::all_of(bytes, [&](std::byte each) { return each == value; }));
    }
  };
  for (std::uint64_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(replay(seed, step));
    const auto place = std::ranges::find(under_way, 0U, &UnderWay::blocks) - under_way.begin();
    const std::size_t blocks = 1 + rng.below(4);
    const std::size_t first = rng.below(file_blocks - blocks + 1);
    if (static_cast<std::size_t>(place) == depth || !is_free(first, blocks)) {
      for (const auto& finished : reap(1)) finish(finished);
      continue;
    }
    const auto tag = static_cast<std::size_t>(place);
    const auto bytes = memory(tag, blocks);
    const std::byte value{static_cast<unsigned char>(rng())};
    under_way[tag] = {.is_read = rng.below(2) == 0, .first = first, .blocks = blocks};
    std::ranges::fill(bytes, value);
    if (!under_way[tag].is_read) std::fill_n(model.begin() + first, blocks, value);
    const FileTransfer transfer = under_way[tag].is_read ? read(first * block, bytes, tag)  //
                                                         : write(first * block, bytes, tag);
    ASSERT_TRUE(queue_->submit({&transfer, 1}));
  }
  for (const auto& finished : reap(queue_->in_flight())) finish(finished);
  EXPECT_EQ(queue_->in_flight(), 0U);
}

TEST_P(EachFileQueue, TakesAsMuchAsItsDepthAllOrNone) {
  std::vector<FileTransfer> all;
  for (std::size_t i = 0; i <= depth; ++i) all.push_back(read(i * block, memory(i % depth), i));
  EXPECT_EQ(queue_->submit(all).error().code, Errc::out_of_memory);
  EXPECT_EQ(queue_->in_flight(), 0U);
  all.pop_back();
  ASSERT_TRUE(queue_->submit(all));
  EXPECT_EQ(queue_->in_flight(), depth);
  EXPECT_EQ(queue_->submit({all.data(), 1}).error().code, Errc::out_of_memory);
  std::vector<std::uint64_t> tags;
  for (const auto& finished : reap(depth)) tags.push_back(finished.tag);
  EXPECT_THAT(tags, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_P(EachFileQueue, RefusesWhatIsNotMadeOfBlocksOfTheFile) {
  const auto bytes = memory(0, 2);
  const FileTransfer wrong[] = {
      read(1, bytes),
      read(0, bytes.subspan(512, block)),
      read(0, bytes.first(block / 2)),
      read(0, {}),
      {.direction = FileTransfer::Direction{9}, .data = bytes.data(), .bytes = block},
      read((file_blocks - 1) * block, bytes),
      read(~std::uint64_t{0} - block + 1, bytes),
  };
  for (const FileTransfer& transfer : wrong) {
    EXPECT_EQ(queue_->submit({&transfer, 1}).error().code, Errc::invalid_argument);
  }
  EXPECT_EQ(queue_->in_flight(), 0U);
}

TEST_P(EachFileQueue, SaysOfATransferThatTheFileEndsBeforeIt) {
  std::filesystem::resize_file(file_->path(), 2 * block);
  const FileTransfer transfers[] = {read(0, memory(0), 0), read(8 * block, memory(1), 1),
                                    read(block, memory(2), 2)};
  ASSERT_TRUE(queue_->submit(transfers));
  for (const auto& finished : reap(3)) {
    ASSERT_EQ(finished.status.has_value(), finished.tag != 1);
    if (finished.status) continue;
    EXPECT_EQ(finished.status.error().code, Errc::io_error);
    EXPECT_THAT(std::string(finished.status.error().message()), HasSubstr("the file was cut"));
  }
}

TEST_P(EachFileQueue, WaitsNoLongerThanItsDeadline) {
  FinishedTransfer finished;
  EXPECT_EQ(queue_->reap({&finished, 1}, Duration{}), 0U);
  EXPECT_EQ(queue_->reap({&finished, 1}, std::chrono::milliseconds(2)), 0U);
}

TEST_P(EachFileQueue, IsWokenFromOtherThreadsAgainAndAgain) {
  FinishedTransfer finished;
  queue_->wake();
  EXPECT_EQ(queue_->reap({&finished, 1}, patience), 0U);
  for (int i = 0; i < 3; ++i) {
    std::thread other([&] { queue_->wake(); });
    EXPECT_EQ(queue_->reap({&finished, 1}, patience), 0U);
    other.join();
  }
  EXPECT_TRUE(run(read(0, memory(0))));
}

TEST_P(EachFileQueue, EndsWithTransfersUnderWay) {
  std::vector<FileTransfer> all;
  for (std::size_t i = 0; i < depth; ++i) all.push_back(write(i * block, memory(i)));
  ASSERT_TRUE(queue_->submit(all));
  queue_.reset();
}

INSTANTIATE_TEST_SUITE_P(
    Engines, EachFileQueue,
    testing::Values(
        QueueCase{.name = "best", .engine = FileEngine::best},
        QueueCase{.name = "best_registered", .engine = FileEngine::best, .registers = true},
        QueueCase{.name = "best_buffered", .engine = FileEngine::best, .direct = DirectIo::never},
        QueueCase{.name = "threads", .engine = FileEngine::threads},
        QueueCase{
            .name = "threads_buffered", .engine = FileEngine::threads, .direct = DirectIo::never}),
    [](const auto& each) { return each.param.name; });

/// A span as large as a host's pool; all its pages map the same few.
class WideMemory {
 public:
  explicit WideMemory(std::size_t bytes) : bytes_(bytes) {
    const int file = ::memfd_create("few", MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(file, few), 0);
    void* const all = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(all, MAP_FAILED);
    data_ = static_cast<std::byte*>(all);
    for (std::size_t at = 0; at < bytes; at += few) {
      EXPECT_NE(::mmap(data_ + at, std::min(few, bytes - at), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED, file, 0),
                MAP_FAILED);
    }
    ::close(file);
  }
  WideMemory(const WideMemory&) = delete;
  WideMemory& operator=(const WideMemory&) = delete;
  ~WideMemory() { ::munmap(data_, bytes_); }
  [[nodiscard]] std::span<std::byte> span() const noexcept { return {data_, bytes_}; }

 private:
  static constexpr std::size_t few = std::size_t{16} << 20;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

TEST(FileQueue, RegistersMemoryOfAnySize) {
  constexpr std::size_t gibibyte = std::size_t{1} << 30;
  const TemporaryFolder folder;
  const auto file = StorageFile::open({.path = folder / "rows", .bytes = 8 * block}).value();
  AlignedBytes little(2 * block);
  const WideMemory wide(2 * gibibyte + 3 * block);
  const auto one = FileQueue::open(file, {.memory = {little.span()}}).value();
  if (one->registered_bytes() == 0) GTEST_SKIP() << one->engine() << " registers nothing here";
  EXPECT_EQ(one->registered_bytes(), little.span().size());
  const auto queue = FileQueue::open(file, {.memory = {little.span(), wide.span()}}).value();
  EXPECT_EQ(queue->registered_bytes(), little.span().size() + wide.span().size());
  // In the first piece, in the last, and in two.
  for (const std::size_t at : {std::size_t{0}, 2 * gibibyte + block, gibibyte - block}) {
    const auto bytes = wide.span().subspan(at, 2 * block);
    std::ranges::fill(bytes, static_cast<std::byte>(at / block + 1));
    const FileTransfer out = write(0, bytes);
    const FileTransfer in = read(0, little.span());
    for (const FileTransfer& transfer : {out, in}) {
      ASSERT_TRUE(queue->submit({&transfer, 1}));
      FinishedTransfer finished;
      while (queue->reap({&finished, 1}, patience) == 0) continue;
      ASSERT_TRUE(finished.status);
    }
    EXPECT_TRUE(std::ranges::equal(little.span(), bytes));
  }
}

TEST(FileQueue, RegistersTheOthersWhereOneSpanCannotBe) {
  const TemporaryFolder folder;
  const auto file = StorageFile::open({.path = folder / "rows", .bytes = block}).value();
  AlignedBytes good(2 * block);
  AlignedBytes other(4 * block);
  void* const closed = ::mmap(nullptr, block, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const std::span<std::byte> bad(static_cast<std::byte*>(closed), block);
  const auto one = FileQueue::open(file, {.memory = {good.span()}}).value();
  if (one->registered_bytes() == 0) GTEST_SKIP() << one->engine() << " registers nothing here";
  const auto queue = FileQueue::open(file, {.memory = {good.span(), bad, other.span()}}).value();
  EXPECT_EQ(queue->registered_bytes(), good.span().size() + other.span().size());
  ::munmap(closed, block);
}

/// Threads that the kernel has for this process's rings.
std::ptrdiff_t kernel_threads() {
  std::ptrdiff_t count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream stream(thread.path() / "comm");
    std::string name;
    stream >> name;
    count += name.starts_with("iou-wrk") ? 1 : 0;
  }
  return count;
}

/// Transfers that the kernel needs threads for: flushes, and all of a file without O_DIRECT.
TEST(FileQueue, HasFewThreadsOfTheKernel) {
  constexpr std::size_t depth = 512;
  const TemporaryFolder folder;
  AlignedBytes memory(depth * block);
  for (const DirectIo direct : {DirectIo::where_possible, DirectIo::never}) {
    const auto file =
        StorageFile::open({.path = folder / "rows", .bytes = depth * block, .direct = direct})
            .value();
    const std::ptrdiff_t before = kernel_threads();  // they outlive their rings for a moment
    const auto queue = FileQueue::open(file, {.depth = depth}).value();
    std::vector<FileTransfer> all;
    for (std::size_t i = 0; i < depth; ++i) {
      all.push_back(write(i * block, memory.span().subspan(i * block, block)));
      if (i % 2 == 0) all.back().direction = FileTransfer::Direction::flush;
    }
    std::ptrdiff_t most = 0;
    for (int round = 0; round < 4; ++round) {
      ASSERT_TRUE(queue->submit(all));
      FinishedTransfer finished;
      while (queue->in_flight() > 0) {
        if (queue->reap({&finished, 1}, patience) == 0) continue;
        ASSERT_TRUE(finished.status);
        most = std::max(most, kernel_threads());
      }
    }
    EXPECT_LE(most - before, 4);
  }
}

TEST(FileQueue, RefusesADepthOutOfRange) {
  const TemporaryFolder folder;
  const auto file = StorageFile::open({.path = folder / "rows", .bytes = block}).value();
  for (const std::size_t depth : {std::size_t{0}, std::size_t{4097}}) {
    EXPECT_EQ(FileQueue::open(file, {.depth = depth}).error().code, Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace terrace::offload
