// Copies of a queue behind pages that a store reads.
#include <gmock/gmock.h>

#include <functional>
#include <memory>

#include "offload/nvme_image.hpp"
#include "terrace/offload/caller_queue.hpp"
#include "terrace/offload/host_backend.hpp"

namespace terrace::offload {
namespace {

class NvmeCompletionTest : public NvmeImageTest {
 protected:
  /// A page on its way to a buffer of the backend, and a copy of it behind.
  struct Passage {
    Passage(Backend& backend, std::uint64_t key)
        : bytes(content(key, 0).size()),
          arrived(backend.allocate({.bytes = bytes, .tier = Tier::host}).value()),
          copied(backend.allocate({.bytes = bytes, .tier = Tier::device}).value()) {
      request.key = {.low = key};
      request.data = arrived.data();
      request.bytes = bytes;
      std::fill_n(arrived.data(), bytes, std::byte{});
      std::fill_n(copied.data(), bytes, std::byte{});
    }
    [[nodiscard]] CopyExtent extent() const { return {copied.data(), arrived.data(), bytes}; }
    [[nodiscard]] bool is(const Bytes& expected) const {
      return std::ranges::equal(expected, std::span(copied.data(), bytes));
    }
    std::size_t bytes;
    Buffer arrived;
    Buffer copied;
    PageRequest request;
  };

  static Result<Ticket> copy_behind(Queue& queue, const StoreTicket& read, const Passage& passage) {
    TERRACE_TRY(queue.wait_for(read.done));
    const CopyExtent extent = passage.extent();
    return queue.copy(Phase::fetch, {&extent, 1});
  }

  std::unique_ptr<Backend> backend_ = HostBackend::create({}).value();
};

TEST_F(NvmeCompletionTest, ACopyStartsWhenItsPageHasArrived) {
  const auto store = open_image();
  ASSERT_TRUE(put(*store, 1, 1));
  const auto copies = backend_->make_queue({.name = "copies"}).value();
  Passage passage(*backend_, 1);
  image_.hold(true);
  const StoreTicket read = store->submit({&passage.request, 1}).value();
  const auto copied = copy_behind(*copies, read, passage);
  ASSERT_TRUE(copied);
  image_.await_handed_over(1);
  EXPECT_FALSE(copies->poll(*copied).value());
  image_.hold(false);
  ASSERT_TRUE(copies->wait(*copied, patience));
  EXPECT_TRUE(passage.request.status);
  EXPECT_TRUE(passage.is(content(1, 1)));
}

/// Batches end in any order, and each copy waits for its own.
TEST_F(NvmeCompletionTest, QueuesWaitForBatchesThatEndInAnyOrder) {
  const auto store = open_image();
  constexpr std::uint64_t count = 12;
  for (std::uint64_t key = 0; key < count; ++key) ASSERT_TRUE(put(*store, key, 1));
  std::vector<std::unique_ptr<Queue>> queues;
  for (const char* const name : {"first", "second", "third"}) {
    queues.push_back(backend_->make_queue({.name = name}).value());
  }
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Passage>> passages;
    for (std::uint64_t key = 0; key < count; ++key) {
      passages.push_back(std::make_unique<Passage>(*backend_, key));
      const StoreTicket read = store->submit({&passages.back()->request, 1}).value();
      ASSERT_TRUE(copy_behind(*queues[key % queues.size()], read, *passages.back()));
    }
    for (const auto& queue : queues) ASSERT_TRUE(queue->drain(patience));
    for (std::uint64_t key = 0; key < count; ++key) {
      ASSERT_TRUE(passages[key]->is(content(key, 1))) << key;
    }
  }
}

TEST_F(NvmeCompletionTest, AThreadOfAnEmbedderWaitsWithinTheCall) {
  const auto store = open_image();
  ASSERT_TRUE(put(*store, 1, 1));
  const auto own = make_caller_queue(*backend_, {.name = "own"}).value();
  Passage passage(*backend_, 1);
  const StoreTicket read = store->submit({&passage.request, 1}).value();
  ASSERT_TRUE(copy_behind(*own, read, passage));
  EXPECT_TRUE(passage.is(content(1, 1)));
}

TEST_F(NvmeCompletionTest, AThreadOfAnEmbedderIsToldThatAPageIsLate) {
  const auto store = open_image();
  ASSERT_TRUE(put(*store, 1, 1));
  const auto own =
      make_caller_queue(*backend_, {.name = "own", .wait_timeout = std::chrono::milliseconds(1)})
          .value();
  Passage passage(*backend_, 1);
  image_.hold(true);
  const StoreTicket read = store->submit({&passage.request, 1}).value();
  const Status late = own->wait_for(read.done);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::not_ready);
  image_.hold(false);
  ASSERT_TRUE(read.done.wait(patience));
  EXPECT_TRUE(own->drain(patience));
}

/// Whatever becomes of the page: its request says so, and the queue goes on.
TEST_F(NvmeCompletionTest, AReadThatFailsOrIsCancelledFailsNoQueue) {
  const auto copies = backend_->make_queue({.name = "copies"}).value();
  const auto outcome = [&](NvmeStore& store,
                           const std::function<void(const StoreTicket&)>& strike) {
    Passage passage(*backend_, 1);
    const StoreTicket read = store.submit({&passage.request, 1}).value();
    EXPECT_TRUE(copy_behind(*copies, read, passage));
    strike(read);
    EXPECT_TRUE(copies->drain(patience));
    EXPECT_FALSE(passage.request.status);
    return passage.request.status ? Errc{} : passage.request.status.error().code;
  };
  const auto nothing = [](const StoreTicket&) {};
  const auto store = open_image();
  EXPECT_EQ(outcome(*store, nothing), Errc::invalid_argument);  // no such page
  ASSERT_TRUE(put(*store, 1, 1));
  image_.fail_with(EIO, 0);
  EXPECT_EQ(outcome(*store, nothing), Errc::io_error);
  image_.fail_with(0, 0);
  image_.hold(true);
  SomeGets others(depth);  // have the disk to themselves
  const StoreTicket first = store->submit(others.batch).value();
  image_.await_handed_over(depth);
  EXPECT_EQ(outcome(*store, [&](const StoreTicket& read) { store->cancel(read); }),
            Errc::cancelled);
  image_.hold(false);
  ASSERT_TRUE(first.done.wait(patience));
  image_.flip(first_page * 8 + 5);
  EXPECT_EQ(outcome(*store, nothing), Errc::corrupt);
}

/// Queues wait for what the store has not begun when it ends.
TEST_F(NvmeCompletionTest, TheEndOfAStoreEndsWaitsForItsBatches) {
  auto store = open_image();
  ASSERT_TRUE(put(*store, 1, 1));
  const auto copies = backend_->make_queue({.name = "copies"}).value();
  std::vector<std::unique_ptr<Passage>> passages;
  for (int i = 0; i < 20; ++i) {
    passages.push_back(std::make_unique<Passage>(*backend_, 1));
    const StoreTicket read = store->submit({&passages.back()->request, 1}).value();
    ASSERT_TRUE(copy_behind(*copies, read, *passages.back()));
  }
  store.reset();
  ASSERT_TRUE(copies->drain(patience));
  for (const auto& passage : passages) {
    EXPECT_TRUE(passage->request.status ? passage->is(content(1, 1))
                                        : passage->request.status.error().code == Errc::cancelled);
  }
}

}  // namespace
}  // namespace terrace::offload
