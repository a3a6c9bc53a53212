#include "terrace/offload/page_mover.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/host_backend.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t page_bytes = 64;
constexpr Duration deadline = std::chrono::milliseconds{20};

class Mover : public ::testing::Test {
 protected:
  Mover() { mover_ = std::make_unique<PageMover>(*pool_, options()); }

  [[nodiscard]] PageMoverOptions options() const {
    return {.store = store_, .owner = 7, .deadline = deadline};
  }
  /// Makes all anew, with room for so many pages and calls that are never late.
  void make_anew(std::size_t pages) {
    mover_.reset();
    pool_.reset();
    backend_ = HostBackend::create({.host_memory_limit = pages * page_bytes}).value();
    pool_ = HostPagePool::create(*backend_, {.page_bytes = page_bytes}).value();
    PageMoverOptions patient = options();
    patient.deadline = std::chrono::minutes{10};
    mover_ = std::make_unique<PageMover>(*pool_, patient);
  }
  /// A page of the pool, with all bytes `value`.
  PageMover::Page filled(int value) {
    const PageHandle host = pool_->allocate().value();
    std::memset(pool_->resolve(host), value, page_bytes);
    return {.host = host};
  }
  void expect_bytes(PageHandle host, int value) {
    const std::vector<std::byte> wanted(page_bytes, std::byte(value));
    EXPECT_EQ(std::memcmp(pool_->resolve(host), wanted.data(), page_bytes), 0);
  }

  std::unique_ptr<Backend> backend_ =
      HostBackend::create({.host_memory_limit = 4 * page_bytes}).value();
  std::unique_ptr<HostPagePool> pool_ =
      HostPagePool::create(*backend_, {.page_bytes = page_bytes}).value();
  std::shared_ptr<doubles::FaultStore> store_ =
      std::make_shared<doubles::FaultStore>(std::make_unique<doubles::MemoryStore>());
  std::unique_ptr<PageMover> mover_;
};

TEST_F(Mover, BringsBackTheBytesThatItTookAway) {
  std::vector<PageMover::Page> pages{filled(1), filled(2)};
  mover_->demote(pages);
  for (PageMover::Page& page : pages) {
    ASSERT_TRUE(page.status.has_value());
    EXPECT_NE(page.stored, StoredPage::none);
    pool_->release(page.host);
  }
  EXPECT_EQ(pool_->pages_in_use(), 0U);
  ASSERT_TRUE(mover_->promote(pages).has_value());
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(pages[i].status.has_value());
    expect_bytes(pages[i].host, static_cast<int>(i) + 1);
    EXPECT_EQ(pool_->references(pages[i].host), 1U);
  }
}

TEST_F(Mover, WritesAPageOnce) {
  PageMover::Page page = filled(1);
  mover_->demote({&page, 1});
  const StoredPage first = page.stored;
  store_->arm({.verb = PageVerb::put, .nth = 1});
  mover_->demote({&page, 1});
  EXPECT_TRUE(page.status.has_value());
  EXPECT_EQ(page.stored, first);
}

TEST_F(Mover, CopiesPagesAheadThatLeaveWithoutAWrite) {
  std::vector<PageMover::Page> pages{filled(1), filled(2)};
  store_->arm({.holds = true});
  mover_->copy(pages);
  EXPECT_TRUE(pages[0].status.has_value() && pages[1].status.has_value());
  EXPECT_EQ(mover_->copies_under_way(), 2U);
  EXPECT_EQ(pool_->references(pages[0].host), 2U) << "nobody may write into it unseen";
  ASSERT_TRUE(store_->release());
  EXPECT_EQ(mover_->copies_under_way(), 0U);
  EXPECT_EQ(pool_->references(pages[0].host), 1U);
  store_->arm({.verb = PageVerb::put, .nth = 1});
  mover_->demote(pages);
  for (PageMover::Page& page : pages) {
    EXPECT_TRUE(page.status.has_value()) << "it was not written again";
    pool_->release(page.host);
  }
  ASSERT_TRUE(mover_->promote(pages).has_value());
  expect_bytes(pages[1].host, 2);
}

TEST_F(Mover, WritesAPageWhoseCopyHasFailed) {
  std::vector<PageMover::Page> pages{filled(1), filled(2)};
  store_->arm({.verb = PageVerb::put, .nth = 2});
  mover_->copy(pages);
  const StoredPage failed = pages[1].stored;
  mover_->demote(pages);
  EXPECT_TRUE(pages[0].status.has_value() && pages[1].status.has_value());
  EXPECT_NE(pages[1].stored, failed);
  for (const PageMover::Page& page : pages) pool_->release(page.host);
  ASSERT_TRUE(mover_->promote(pages).has_value());
  expect_bytes(pages[0].host, 1);
  expect_bytes(pages[1].host, 2);
}

TEST_F(Mover, DoesNotWaitForTheTurnOfACopyThatHasNotBegun) {
  PageMover::Page page = filled(1);
  store_->arm({.holds = true});
  mover_->copy({&page, 1});
  store_->arm({});  // batches from now on begin at once, and those that are held do not
  mover_->demote({&page, 1});
  EXPECT_TRUE(page.status.has_value());
  pool_->release(page.host);
  EXPECT_EQ(pool_->pages_in_use(), 0U) << "the copy keeps no page";
  ASSERT_TRUE(mover_->promote({&page, 1}).has_value());
  expect_bytes(page.host, 1);
}

TEST_F(Mover, ErasesACopyThatIsReleasedWhileItIsUnderWay) {
  PageMover::Page page = filled(1);
  store_->arm({.holds = true});
  mover_->copy({&page, 1});
  mover_->release(page.stored);
  EXPECT_EQ(mover_->page_count(), 0U);
  ASSERT_TRUE(store_->release());
  store_->arm({});
  mover_.reset();
  EXPECT_EQ(store_->usage().pages, 0U);
}

TEST_F(Mover, ErasesAPageWithItsLastReference) {
  PageMover::Page page = filled(1);
  mover_->demote({&page, 1});
  mover_->share(page.stored, PageHandle::hole());
  mover_->release(page.stored);
  EXPECT_EQ(mover_->page_count(), 1U);
  mover_->release(page.stored);
  EXPECT_EQ(mover_->page_count(), 0U);
  mover_.reset();
  PageRequest find{.verb = PageVerb::find, .key = {.high = 7, .low = 1}};
  const StoreTicket asked = store_->submit({&find, 1}).value();
  ASSERT_TRUE(asked.done.wait(deadline).has_value());
  EXPECT_FALSE(find.status.has_value());
}

TEST_F(Mover, ReadsAdoptedPagesFromWithinALargerOne) {
  std::vector<std::byte> bytes(3 * page_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(1 + i / page_bytes);
  constexpr PageKey key{.high = 99, .low = 1};
  StoreCalls calls(store_, deadline);
  ASSERT_TRUE(calls.write({{.key = key, .bytes = bytes}}).has_value());
  std::vector<PageMover::Page> pages(2);
  pages[0].stored = mover_->adopt({.key = key, .offset = 2 * page_bytes});
  pages[1].stored = mover_->adopt({.key = key});
  ASSERT_TRUE(mover_->promote(pages).has_value());
  ASSERT_TRUE(pages[0].status.has_value() && pages[1].status.has_value());
  expect_bytes(pages[0].host, 3);
  expect_bytes(pages[1].host, 1);
  // A page that was read stays known, so that the host may give it up without a write.
  store_->arm({.verb = PageVerb::put, .nth = 1});
  mover_->demote(pages);
  EXPECT_TRUE(pages[0].status.has_value());
  // The pages are not the mover's: they outlast it.
  for (const PageMover::Page& page : pages) {
    mover_->give_back(page.stored, page.host);
    mover_->release(page.stored);
  }
  EXPECT_EQ(mover_->page_count(), 0U);
  mover_.reset();
  EXPECT_EQ(calls.sizes_of({&key, 1}).value().front(), bytes.size());
}

class SharingMover : public Mover {
 protected:
  SharingMover() {
    const std::vector<std::byte> bytes(page_bytes, std::byte{5});
    EXPECT_TRUE(StoreCalls(store_, deadline).write({{.key = key_, .bytes = bytes}}).has_value());
    for (PageMover::Page& page : pages_) page.stored = mover_->adopt({.key = key_});
  }
  /// Names of the same bytes.
  std::vector<PageMover::Page> pages_{3};
  const PageKey key_{.high = 99, .low = 1};
};

TEST_F(SharingMover, ReadsBytesOnceForAllThatHaveThem) {
  const std::span<PageMover::Page> first(pages_.data(), 2);
  ASSERT_TRUE(mover_->promote(first).has_value());
  ASSERT_TRUE(mover_->promote({&pages_[2], 1}).has_value());
  for (const PageMover::Page& page : pages_) {
    ASSERT_TRUE(page.status.has_value());
    EXPECT_EQ(page.host, pages_[0].host);
    EXPECT_EQ(page.was_read, &page == pages_.data());
  }
  EXPECT_EQ(pool_->references(pages_[0].host), 3U);
  expect_bytes(pages_[0].host, 5);
}

TEST_F(SharingMover, ForgetsAPageWithItsLastHolder) {
  ASSERT_TRUE(mover_->promote(std::span(pages_).first(2)).has_value());
  mover_->share(pages_[1].stored, pages_[1].host);  // of a third holder
  pool_->share(pages_[1].host);
  for (const std::size_t holder : {0U, 1U}) {
    mover_->give_back(pages_[holder].stored, pages_[holder].host);
    ASSERT_TRUE(mover_->promote({&pages_[2], 1}).has_value());
    EXPECT_FALSE(pages_[2].was_read);
    mover_->give_back(pages_[2].stored, pages_[2].host);
  }
  mover_->give_back(pages_[1].stored, pages_[1].host);
  EXPECT_EQ(pool_->pages_in_use(), 0U);
  const PageHandle other = filled(6).host;  // in the same memory
  ASSERT_TRUE(mover_->promote({&pages_[2], 1}).has_value());
  EXPECT_TRUE(pages_[2].was_read);
  expect_bytes(pages_[2].host, 5);
  expect_bytes(other, 6);
}

TEST_F(SharingMover, SharesNoPageThatMayBeWritten) {
  ASSERT_TRUE(mover_->promote({pages_.data(), 1}).has_value());
  mover_->keep(pages_[0].stored, pages_[0].host);
  std::memset(pool_->resolve(pages_[0].host), 6, page_bytes);
  ASSERT_TRUE(mover_->promote(std::span(pages_).subspan(1)).has_value());
  EXPECT_TRUE(pages_[1].was_read);
  expect_bytes(pages_[2].host, 5);
  mover_->give_back(pages_[0].stored, pages_[0].host);
  EXPECT_EQ(pool_->references(pages_[1].host), 2U) << "it is another page";
}

TEST_F(SharingMover, SaysOfAllWhoWantBytesThatTheyCouldNotBeRead) {
  store_->arm({.verb = PageVerb::get_part, .nth = 1});
  ASSERT_TRUE(mover_->promote(pages_).has_value());
  for (const PageMover::Page& page : pages_) {
    ASSERT_FALSE(page.status.has_value());
    EXPECT_EQ(page.status.error().code, Errc::io_error);
    EXPECT_TRUE(page.host.is_hole());
  }
  EXPECT_EQ(pool_->pages_in_use(), 0U);
  ASSERT_TRUE(mover_->promote(pages_).has_value());
  EXPECT_TRUE(pages_[2].status.has_value());
}

TEST_F(SharingMover, TakesNothingWhereRoomIsShort) {
  ASSERT_TRUE(mover_->promote({pages_.data(), 1}).has_value());
  PageMover::Page away = filled(1);
  mover_->demote({&away, 1});
  pool_->release(away.host);
  for (int i = 0; i < 3; ++i) static_cast<void>(pool_->allocate().value());
  std::vector<PageMover::Page> wanted{pages_[1], away};
  const Status promoted = mover_->promote(wanted);
  ASSERT_FALSE(promoted.has_value());
  EXPECT_EQ(promoted.error().code, Errc::out_of_memory);
  EXPECT_TRUE(wanted[0].host.is_hole());
  EXPECT_EQ(pool_->references(pages_[0].host), 1U);
}

TEST_F(Mover, KeepsAPageOnTheHostThatCannotBeWritten) {
  std::vector<PageMover::Page> pages{filled(1), filled(2)};
  store_->arm({.verb = PageVerb::put, .nth = 1});
  mover_->demote(pages);
  ASSERT_FALSE(pages[0].status.has_value());
  EXPECT_EQ(pages[0].status.error().code, Errc::io_error);
  EXPECT_EQ(pages[0].stored, StoredPage::none);
  EXPECT_TRUE(pages[1].status.has_value());
  expect_bytes(pages[0].host, 1);
}

TEST_F(Mover, AsksForRoomInAFullStoreAndTriesAgain) {
  const auto small = std::make_shared<doubles::MemoryStore>(
      doubles::MemoryStoreOptions{.capacity_bytes = 2 * page_bytes});
  StoreCalls calls(small, deadline);
  constexpr PageKey other{.high = 99, .low = 1};
  ASSERT_TRUE(calls.write({{other, std::vector<std::byte>(page_bytes)}}).has_value());
  std::vector<std::uint64_t> asked;
  bool frees = false;
  mover_.reset();
  const auto make_room = [&](std::uint64_t bytes) {
    asked.push_back(bytes);
    return frees && calls.erase({&other, 1}).has_value() && std::exchange(frees, false);
  };
  mover_ = std::make_unique<PageMover>(
      *pool_,
      PageMoverOptions{.store = small, .owner = 7, .deadline = deadline, .make_room = make_room});
  std::vector<PageMover::Page> pages{filled(1), filled(2), filled(3)};
  mover_->demote(std::span(pages).first(2));
  EXPECT_TRUE(pages[0].status.has_value());
  EXPECT_EQ(pages[1].status.error().code, Errc::out_of_memory);
  EXPECT_THAT(asked, testing::ElementsAre(page_bytes));
  frees = true;
  mover_->demote(std::span(pages).subspan(1));
  EXPECT_TRUE(pages[1].status.has_value());
  EXPECT_EQ(pages[2].status.error().code, Errc::out_of_memory) << "nothing more could be freed";
  EXPECT_THAT(asked, testing::ElementsAre(page_bytes, 2 * page_bytes, page_bytes));
  EXPECT_EQ(small->usage().pages, 2U);
  pool_->release(pages[1].host);
  ASSERT_TRUE(mover_->promote(std::span(pages).subspan(1, 1)).has_value());
  expect_bytes(pages[1].host, 2);
}

TEST_F(Mover, SaysOfEachPageWhetherItCouldBeRead) {
  std::vector<PageMover::Page> pages{filled(1), filled(2)};
  mover_->demote(pages);
  for (const PageMover::Page& page : pages) pool_->release(page.host);
  store_->arm({.verb = PageVerb::get, .nth = 2});
  ASSERT_TRUE(mover_->promote(pages).has_value());
  EXPECT_TRUE(pages[0].status.has_value());
  ASSERT_FALSE(pages[1].status.has_value());
  EXPECT_TRUE(pages[1].host.is_hole());
  EXPECT_EQ(pool_->pages_in_use(), 1U);
  EXPECT_EQ(mover_->page_count(), 2U) << "the store still has both";
}

TEST_F(Mover, ReadsNothingWithoutRoomForAll) {
  std::vector<PageMover::Page> pages{filled(1), filled(2)};
  mover_->demote(pages);
  for (const PageMover::Page& page : pages) pool_->release(page.host);
  std::vector<PageHandle> others;
  for (int i = 0; i < 3; ++i) others.push_back(pool_->allocate().value());
  const Status promoted = mover_->promote(pages);
  ASSERT_FALSE(promoted.has_value());
  EXPECT_EQ(promoted.error().code, Errc::out_of_memory);
  EXPECT_EQ(promoted.error().lacks, Tier::host);
  EXPECT_EQ(pool_->pages_in_use(), 3U);
}

TEST_F(SharingMover, LendsNoPageThatALateBatchMayStillWrite) {
  store_->arm({.holds = true});
  ASSERT_TRUE(mover_->promote({pages_.data(), 1}).has_value());
  ASSERT_FALSE(pages_[0].status.has_value()) << "it is late";
  store_->arm({});
  ASSERT_TRUE(mover_->promote(std::span(pages_).subspan(1)).has_value());
  EXPECT_TRUE(pages_[1].was_read);
  expect_bytes(pages_[2].host, 5);
}

/// Threads that bring the same bytes, give them back, or keep them and write: each always sees the
/// bytes, or its own.
TEST_F(SharingMover, GivesEachThreadTheBytesThatItAskedFor) {
  make_anew(64);
  const auto live = [&](std::uint64_t thread) {
    Rng rng(thread);
    const std::vector<std::byte> right(page_bytes, std::byte{5});
    for (int round = 0; round < 2'000; ++round) {
      PageMover::Page page{.stored = mover_->adopt({.key = key_})};
      ASSERT_TRUE(mover_->promote({&page, 1}).has_value());
      ASSERT_TRUE(page.status.has_value());
      ASSERT_EQ(std::memcmp(pool_->resolve(page.host), right.data(), page_bytes), 0);
      const bool keeps = rng.below(3) == 0;
      if (keeps) {
        mover_->keep(page.stored, page.host);
        if (pool_->references(page.host) == 1) {
          std::memset(pool_->resolve(page.host), static_cast<int>(thread), page_bytes);
        }
        pool_->release(page.host);
      } else {
        mover_->give_back(page.stored, page.host);
      }
      mover_->release(page.stored);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 3; ++thread) threads.emplace_back(live, 10 + thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool_->pages_in_use(), 0U);
}

class MoverOfManyPages : public Mover {
 protected:
  static constexpr std::size_t count = 4 * PageMover::batch_pages + 3;

  MoverOfManyPages() {
    make_anew(2 * count);
    for (std::size_t i = 0; i < count; ++i) pages_.push_back(filled(static_cast<int>(i % 100)));
    mover_->demote(pages_);
    for (const PageMover::Page& page : pages_) pool_->release(page.host);
  }

  /// Expects that the first pages have come, and no other one.
  void expect_come(std::size_t first) {
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(!pages_[i].host.is_hole(), i < first) << i;
      if (i < first) expect_bytes(pages_[i].host, static_cast<int>(i % 100));
    }
    EXPECT_EQ(pool_->pages_in_use(), first);
  }

  std::vector<PageMover::Page> pages_;
};

TEST_F(MoverOfManyPages, HasTwoBatchesUnderWayAtATime) {
  store_->arm({.holds = true});
  Status promoted;
  std::thread caller([&] { promoted = mover_->promote(pages_); });
  for (std::size_t released = 0; released < 5; ++released) {
    const std::size_t started = (released + 2) * PageMover::batch_pages;
    while (pool_->pages_in_use() < std::min(started, count)) std::this_thread::yield();
    EXPECT_LE(pool_->pages_in_use(), started);
    while (!store_->release()) std::this_thread::yield();
  }
  caller.join();
  EXPECT_TRUE(promoted.has_value());
  expect_come(count);
}

TEST_F(MoverOfManyPages, ReadsNoBatchBehindAnError) {
  store_->arm({.verb = PageVerb::get, .nth = PageMover::batch_pages});
  ASSERT_TRUE(mover_->promote(pages_).has_value());
  EXPECT_FALSE(pages_[PageMover::batch_pages - 1].status.has_value());
  EXPECT_TRUE(pages_.back().status.has_value()) << "nothing was asked of the store";
  EXPECT_TRUE(pages_.back().host.is_hole());
  EXPECT_EQ(pool_->pages_in_use(), 2 * PageMover::batch_pages - 1) << "one batch was under way";
}

TEST_F(MoverOfManyPages, KeepsTheBatchesThatCameBeforeMemoryWasShort) {
  std::vector<PageHandle> others;
  while (auto other = pool_->allocate()) others.push_back(*other);
  for (std::size_t i = 0; i < 3 * PageMover::batch_pages - 1; ++i) pool_->release(others[i]);
  const std::size_t before = pool_->pages_in_use();
  const Status promoted = mover_->promote(pages_);
  ASSERT_FALSE(promoted.has_value());
  EXPECT_EQ(promoted.error().code, Errc::out_of_memory);
  EXPECT_EQ(pool_->pages_in_use() - before, 2 * PageMover::batch_pages);
  EXPECT_FALSE(pages_[2 * PageMover::batch_pages - 1].host.is_hole());
  EXPECT_TRUE(pages_[2 * PageMover::batch_pages].host.is_hole());
}

TEST_F(Mover, ReadsAdoptedPagesFromTheStoreThatTheirPlacesName) {
  const auto others =
      std::make_shared<doubles::FaultStore>(std::make_unique<doubles::MemoryStore>());
  std::vector<std::byte> bytes(page_bytes, std::byte{8});
  bytes.resize(2 * page_bytes, std::byte{9});
  const PageKey key{.high = 1, .low = 2};
  ASSERT_TRUE(StoreCalls(others, deadline).write({{.key = key, .bytes = bytes}}));
  EXPECT_EQ(mover_->source_of(store_), nullptr);
  const std::shared_ptr<StoreCalls> source = mover_->source_of(others);
  ASSERT_NE(source, nullptr);
  std::vector<PageMover::Page> pages{filled(1), {}, {}};
  mover_->demote({pages.data(), 1});
  pool_->release(pages[0].host);
  pages[1].stored = mover_->adopt({.key = key, .offset = page_bytes, .source = source});
  pages[2].stored = mover_->adopt({.key = key, .source = source});
  ASSERT_TRUE(mover_->promote(pages));
  for (const PageMover::Page& page : pages) ASSERT_TRUE(page.status);
  expect_bytes(pages[0].host, 1);
  expect_bytes(pages[1].host, 9);
  expect_bytes(pages[2].host, 8);
  for (const PageMover::Page& page : pages) mover_->give_back(page.stored, page.host);
  // A store that fails fails its own pages alone.
  others->arm({.verb = PageVerb::get_part, .probability = 1});
  ASSERT_TRUE(mover_->promote(pages));
  EXPECT_TRUE(pages[0].status);
  EXPECT_FALSE(pages[1].status);
  EXPECT_FALSE(pages[2].status);
  others->arm({});
  for (const PageMover::Page& page : pages) mover_->release(page.stored);
  EXPECT_EQ(others->usage().pages, 1U) << "it is somebody else's";
}

TEST_F(Mover, WithoutAStoreReadsAdoptedPagesAlone) {
  mover_ = std::make_unique<PageMover>(*pool_, PageMoverOptions{.deadline = deadline});
  EXPECT_FALSE(mover_->has_store());
  PageMover::Page page = filled(1);
  mover_->demote({&page, 1});
  ASSERT_FALSE(page.status);
  EXPECT_EQ(page.status.error().code, Errc::unsupported);
  EXPECT_EQ(page.stored, StoredPage::none);
  const PageKey key{.high = 1, .low = 2};
  ASSERT_TRUE(
      StoreCalls(store_, deadline)
          .write({{.key = key, .bytes = std::vector<std::byte>(page_bytes, std::byte{5})}}));
  PageMover::Page adopted{.stored =
                              mover_->adopt({.key = key, .source = mover_->source_of(store_)})};
  ASSERT_TRUE(mover_->promote({&adopted, 1}));
  ASSERT_TRUE(adopted.status);
  expect_bytes(adopted.host, 5);
}

TEST_F(Mover, GivesALateBatchUpAndGoesOn) {
  PageMover::Page page = filled(1);
  mover_->demote({&page, 1});
  pool_->release(page.host);
  store_->arm({.holds = true});
  ASSERT_TRUE(mover_->promote({&page, 1}).has_value());
  ASSERT_FALSE(page.status.has_value());
  store_->arm({});
  ASSERT_TRUE(mover_->promote({&page, 1}).has_value());
  ASSERT_TRUE(page.status.has_value());
  expect_bytes(page.host, 1);
  EXPECT_EQ(pool_->pages_in_use(), 1U) << "the late batch holds no page any more";
}

}  // namespace
}  // namespace terrace::offload
