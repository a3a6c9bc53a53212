// Which requests of a store go to the disk first, by each engine.
#include <gmock/gmock.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "core/temporary_folder.hpp"
#include "offload/stored_pages.hpp"
#include "terrace/offload/nvme_store.hpp"

namespace terrace::offload {
namespace {

/// Transfers that are handed to a queue; they end when the test says so.
class Passing {
 public:
  void hold(bool holds) {
    const std::scoped_lock lock(mutex_);
    holds_ = holds;
    news_.notify_all();
  }
  /// Waits until so many transfers of a direction have been handed over.
  void await(FileTransfer::Direction direction, std::ptrdiff_t count) {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return std::ranges::count(directions_, direction) >= count; });
  }
  void note(const FileTransfer& transfer) {
    const std::scoped_lock lock(mutex_);
    directions_.push_back(transfer.direction);
    news_.notify_all();
  }
  void note_wake() {
    const std::scoped_lock lock(mutex_);
    woken_ = true;
    news_.notify_all();
  }
  /// Waits until transfers are handed back, or a wake. Returns whether they are.
  bool await_release() {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return !holds_ || std::exchange(woken_, false); });
    return !holds_;
  }
  std::vector<FileTransfer::Direction> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(directions_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  bool holds_ = false;
  bool woken_ = false;
  std::vector<FileTransfer::Direction> directions_;  ///< of pages, in order
};

class PassingQueue final : public FileQueue {
 public:
  PassingQueue(const StorageFile& file, const FileQueueOptions& options, Passing& passing)
      : FileQueue(file, options.depth),
        inner_(FileQueue::open(file, options).value()),
        passing_(passing) {}
  [[nodiscard]] std::string_view engine() const noexcept override { return inner_->engine(); }
  void wake() noexcept override {
    passing_.note_wake();
    inner_->wake();
  }

 private:
  void do_submit(std::span<const FileTransfer> transfers) override {
    constexpr std::uint64_t first_of_pages = 2;  // before it: the directory's
    for (const FileTransfer& each : transfers) {
      if (each.tag >= first_of_pages) passing_.note(each);
    }
    ASSERT_TRUE(inner_->submit(transfers));
  }
  std::size_t do_reap(std::span<FinishedTransfer> finished, Duration timeout) override {
    return passing_.await_release() ? inner_->reap(finished, timeout) : 0;
  }

  std::unique_ptr<FileQueue> inner_;
  Passing& passing_;
};

class NvmePriorityTest : public testing::TestWithParam<FileEngine> {
 protected:
  static constexpr std::size_t depth = 8;

  std::unique_ptr<NvmeStore> open() {
    return NvmeStore::open({.file = {.path = folder_ / "pages", .bytes = file_bytes},
                            .pages_max = 100,
                            .queue = {.engine = GetParam(), .depth = depth},
                            .open_queue =
                                [this](const StorageFile& file, const FileQueueOptions& options) {
                                  return Result<std::unique_ptr<FileQueue>>(
                                      std::make_unique<PassingQueue>(file, options, passing_));
                                }})
        .value();
  }
  TemporaryFolder folder_;
  Passing passing_;
};

/// Reads that are submitted while writes of the background wait: no write begins before the last
/// read but those that were at the disk, half of what it takes.
TEST_P(NvmePriorityTest, HandsAwaitedReadsOverBeforeWritesOfTheBackground) {
  using Direction = FileTransfer::Direction;
  constexpr std::uint64_t count = 12;
  const auto store = open();
  std::vector<Bytes> sources;
  std::vector<Bytes> targets;
  std::vector<PageRequest> puts;
  std::vector<PageRequest> gets;
  for (std::uint64_t key = 0; key < count; ++key) {
    ASSERT_TRUE(put(*store, key, 1));
    sources.push_back(content(count + key, 1));
    targets.emplace_back(content(key, 1).size());
  }
  for (std::uint64_t key = 0; key < count; ++key) {
    puts.push_back(request(PageVerb::put, count + key, sources[key]));
    gets.push_back(request(PageVerb::get, key, targets[key]));
  }
  passing_.hold(true);
  passing_.take();
  const StoreTicket behind = store->submit(puts, {.priority = Priority::background}).value();
  passing_.await(Direction::write, depth / 2);
  const StoreTicket step = store->submit(gets).value();
  passing_.await(Direction::read, depth / 2);
  passing_.hold(false);
  ASSERT_TRUE(step.done.wait(patience));
  ASSERT_TRUE(behind.done.wait(patience));
  const std::vector<Direction> order = passing_.take();
  ASSERT_EQ(order.size(), 2 * count);
  const auto last_read = std::find(order.rbegin(), order.rend(), Direction::read).base();
  EXPECT_EQ(std::count(order.begin(), last_read, Direction::write), depth / 2);
  for (std::uint64_t key = 0; key < count; ++key) {
    EXPECT_TRUE(puts[key].status);
    EXPECT_TRUE(gets[key].status);
    EXPECT_EQ(targets[key], content(key, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, NvmePriorityTest,
                         testing::Values(FileEngine::best, FileEngine::threads),
                         [](const auto& each) {
                           return each.param == FileEngine::best ? "best" : "threads";
                         });

}  // namespace
}  // namespace terrace::offload
