// Requests of a store over a disk in memory that stands still: cancelled, counted, ended.
#include <gmock/gmock.h>

#include <cerrno>

#include "offload/nvme_image.hpp"

namespace terrace::offload {
namespace {

using testing::HasSubstr;

/// A put has its room from its beginning; a place that cannot be used is nobody's.
TEST_F(NvmeImageTest, CountsRoomOfPutsUnderWayAndOfBadPlacesAsReserved) {
  const auto store = open_image();
  const StoreUsage empty = store->usage();
  EXPECT_EQ(empty.free_bytes, file_bytes - block - first_page);
  image_.hold(true);
  Bytes bytes = content(1, 1);
  std::vector<PageRequest> batch{request(PageVerb::put, 1, bytes)};
  const StoreTicket ticket = store->submit(batch).value();
  image_.await_handed_over(1);
  EXPECT_EQ(store->usage().reserved_bytes, rounded(1));
  EXPECT_EQ(store->usage().free_bytes, empty.free_bytes - rounded(1));
  EXPECT_EQ(store->usage().pages, 0U);
  image_.hold(false);
  ASSERT_TRUE(ticket.done.wait(patience));
  EXPECT_EQ(store->usage().reserved_bytes, 0U);
  EXPECT_EQ(store->usage().used_bytes, rounded(1));
  image_.spoil(first_page, rounded(1), EIO, EIO);
  EXPECT_FALSE(get(*store, 1));
  ASSERT_TRUE(erase(*store, 1));
  EXPECT_EQ(store->usage().reserved_bytes, rounded(1));
  EXPECT_EQ(store->usage().free_bytes, empty.free_bytes - rounded(1));
}

TEST_F(NvmeImageTest, CancelsWhatHasNotBegunAndEndsWhatHas) {
  const auto store = open_image();
  ASSERT_TRUE(put(*store, 1, 1));
  image_.hold(true);
  SomeGets gets(20);
  const StoreTicket ticket = store->submit(gets.batch).value();
  image_.await_handed_over(depth);
  store->cancel(ticket);
  store->cancel(ticket);
  const Status waited = ticket.done.wait(Duration{});
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, Errc::not_ready);
  EXPECT_FALSE(ticket.done.is_set());
  image_.hold(false);
  ASSERT_TRUE(ticket.done.wait(patience));
  for (std::size_t i = 0; i < gets.batch.size(); ++i) {
    if (i < depth) {
      EXPECT_TRUE(gets.batch[i].status);
      EXPECT_EQ(gets.targets[i], content(1, 1));
    } else {
      EXPECT_TRUE(gets.is_cancelled(i)) << i;
    }
  }
}

/// While the disk stands still: the answer is there, and the memory is the caller's again.
TEST_F(NvmeImageTest, AnswersForABatchOfWhichNothingHasBegunAtOnce) {
  const auto store = open_image();
  ASSERT_TRUE(put(*store, 1, 1));
  image_.hold(true);
  SomeGets at_the_disk(depth);
  const StoreTicket first = store->submit(at_the_disk.batch).value();
  image_.await_handed_over(depth);
  {
    SomeGets gets(5);
    Bytes newer = content(1, 2);
    gets.batch.push_back(request(PageVerb::put, 1, newer));
    const StoreTicket second = store->submit(gets.batch).value();
    store->cancel(second);
    ASSERT_TRUE(second.done.wait(patience));
    for (std::size_t i = 0; i < 5; ++i) EXPECT_TRUE(gets.is_cancelled(i)) << i;
    EXPECT_EQ(gets.batch.back().status.error().code, Errc::cancelled);
  }
  image_.hold(false);
  ASSERT_TRUE(first.done.wait(patience));
  for (const Bytes& target : at_the_disk.targets) EXPECT_EQ(target, content(1, 1));
  EXPECT_EQ(get(*store, 1).value(), content(1, 1));
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
