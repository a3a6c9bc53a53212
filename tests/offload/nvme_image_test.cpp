// A store over a disk in memory, which is damaged, fails and ends.
#include "offload/nvme_image.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cerrno>
#include <map>

#include "contract/fuzz.hpp"

namespace terrace::offload {
namespace {

using testing::HasSubstr;

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
  std::vector<std::size_t> used;  // of pages: other bytes of theirs say nothing
  for (std::size_t at = first_page; at < whole.size(); ++at) {
    if (whole[at] != std::byte{}) used.push_back(at);
  }
  const std::uint64_t steps = std::min<std::uint64_t>(fuzz_steps() / 10, 400);
  std::size_t lost = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(replay(seed, step));
    // Half of the flips before the first page, where zeros are numbers, too.
    const std::size_t byte =
        rng.below(2) == 0 ? rng.below(first_page) : used[rng.below(used.size())];
    image_.flip(byte * 8 + rng.below(8));
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
    ASSERT_EQ(store->state().health.corrupt, corrupt + store->state().health.lost);
    ASSERT_GE(store->state().health.corrupt, missing);
    lost += missing;
    store.reset();
    image_.restore(whole);
  }
  EXPECT_GT(lost, 0U);
}

/// Whatever bit of a page flips: the part that it lies in is corrupt, and the others are there.
TEST_F(NvmeImageTest, FindsADamagedPartAndReadsTheOthers) {
  const auto store = open_image();
  const std::uint64_t key = key_of_large_page(0);
  ASSERT_TRUE(put(*store, key, 1));
  const Bytes whole = content(key, 1);
  const std::uint64_t seed = fuzz_seed(17);
  Rng rng(seed);
  for (std::uint64_t step = 0; step < std::min<std::uint64_t>(fuzz_steps() / 10, 400); ++step) {
    SCOPED_TRACE(replay(seed, step));
    const std::size_t byte = rng.below(whole.size());
    const std::size_t bit = (first_page + byte) * 8 + rng.below(8);
    image_.flip(bit);
    for (std::size_t at = 0; at < whole.size(); at += block) {
      const bool is_damaged = byte / block == at / block;
      const auto found = get_part(*store, key, at, std::min(block, whole.size() - at));
      ASSERT_EQ(found.has_value(), !is_damaged);
      if (found) {
        ASSERT_TRUE(std::ranges::equal(*found, std::span(whole).subspan(at, found->size())));
      } else {
        ASSERT_EQ(found.error().code, Errc::corrupt);
      }
    }
    ASSERT_EQ(store->state().health.corrupt, step + 1);
    image_.flip(bit);
  }
  EXPECT_EQ(get(*store, key).value(), whole);
}

/// A part of another place of the page, or of another page, is not taken for the one there.
TEST_F(NvmeImageTest, FindsPartsThatLieAtAnothersPlace) {
  const auto store = open_image();
  const std::uint64_t key = key_of_large_page(0);
  const std::uint64_t other = key_of_large_page(key + 1);
  ASSERT_TRUE(put(*store, key, 1));
  ASSERT_TRUE(put(*store, other, 1));
  image_.move_bytes(first_page, first_page + block, block);
  image_.move_bytes(first_page + rounded(key), first_page + 2 * block, block);
  EXPECT_TRUE(get_part(*store, key, 0, block));
  for (const auto& [offset, bytes] :
       {std::pair{block, block}, {2 * block, block}, {0, 2 * block}}) {
    const auto found = get_part(*store, key, offset, bytes);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, Errc::corrupt);
  }
  EXPECT_EQ(get(*store, key).error().code, Errc::corrupt);
  EXPECT_EQ(get(*store, other).value(), content(other, 1));
}

TEST_F(NvmeImageTest, RefusesAContainerOfAnotherVersionAndLeavesItAsItIs) {
  ASSERT_TRUE(put(*open_image(), 1, 1));
  for (const std::size_t copy : {0U, 1U}) image_.write_version(copy * block, 1);
  const std::vector<std::byte> before = image_.copy();
  const auto refused = try_to_open_image();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_THAT(std::string(refused.error().message()),
              HasSubstr("is a container of version 1, and this is a program for version 2"));
  EXPECT_EQ(image_.copy(), before);
}

/// Whatever blocks are damaged, unreadable, or overwritten by others of the file: a page is the
/// newest one, or none, and opening the file again finds the same.
TEST_F(NvmeImageTest, NeverServesAnOlderVersionForDamagedBlocks) {
  constexpr std::uint64_t count = 20;
  std::map<std::uint64_t, std::uint64_t> newest;
  const std::uint64_t seed = fuzz_seed(13);
  Rng rng(seed);
  {
    const auto store = open_image();
    for (std::uint64_t version = 1; version < 90; ++version) {  // over the journal's end
      const std::uint64_t key = rng.below(count);
      ASSERT_TRUE(put(*store, key, version));
      newest[key] = version;
    }
  }
  const std::vector<std::byte> whole = image_.copy();
  const auto draw_block = [&] {  // most in the directory, and no block of zeros
    while (true) {
      const std::size_t chosen =
          rng.below(4) == 0 ? rng.below(file_bytes / block) : rng.below(first_page / block);
      const std::span<const std::byte> bytes = std::span(whole).subspan(chosen * block, block);
      if (std::ranges::any_of(bytes, [](std::byte each) { return each != std::byte{}; })) {
        return chosen * block;
      }
    }
  };
  // Few damages cost a page: of fewer steps none may.
  const auto steps = std::clamp<std::uint64_t>(fuzz_steps() / 500, 100, 2000);
  std::size_t lost = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(replay(seed, step));
    const std::size_t first = draw_block();
    for (std::uint64_t i = 0; i < 1 + rng.below(4); ++i) {
      // Copies lie side by side.
      const std::size_t at = i % 2 == 0 ? draw_block() : first ^ block;
      switch (rng.below(3)) {
        case 0:
          image_.flip(at * 8 + rng.below(block * 8));
          break;
        case 1:
          image_.spoil(at, block, EIO, 0);
          break;
        default:
          image_.move_bytes(draw_block(), at, block);
      }
    }
    for (int time = 0; time < 2; ++time) {
      auto store = try_to_open_image();
      if (!store) break;  // both superblocks are damaged
      for (const auto& [key, version] : newest) {
        const auto found = get(**store, key);
        lost += found ? 0U : 1U;
        if (found) {
          ASSERT_EQ(*found, content(key, version)) << key;
        }
      }
      store->reset();
      image_.heal();
    }
    image_.heal();
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

/// Nine pages, and the first is put once more: ten pairs of the journal.
class NvmeJournalTest : public NvmeImageTest {
 protected:
  static constexpr std::uint64_t count = 9;

  void SetUp() override {
    const auto store = open_image();
    for (std::uint64_t key = 0; key < count; ++key) ASSERT_TRUE(put(*store, key, 1));
    ASSERT_TRUE(put(*store, 0, 2));
  }
  void expect_all(NvmeStore& store) {
    EXPECT_EQ(get(store, 0).value_or(Bytes()), content(0, 2));
    for (std::uint64_t key = 1; key < count; ++key) {
      EXPECT_EQ(get(store, key).value_or(Bytes()), content(key, 1)) << key;
    }
  }
};

TEST_F(NvmeJournalTest, TakesTheRightCopyOfAPair) {
  const std::vector<std::byte> whole = image_.copy();
  for (const std::size_t copy : {0U, 1U}) {
    for (const std::size_t misplaced : {std::size_t{0}, std::size_t{1}, std::size_t{9}}) {
      image_.move_bytes(journal_copy(misplaced, 0), journal_copy(2, copy), block);
      expect_all(*open_image());
      image_.restore(whole);
    }
  }
}

/// The pages that a lost pair changed are not known: no page before it counts as the newest.
TEST_F(NvmeJournalTest, ServesNoPageThatALostPairMayHaveChanged) {
  const std::vector<std::byte> whole = image_.copy();
  for (const std::size_t lost : {std::size_t{4}, std::size_t{9}}) {
    SCOPED_TRACE(lost);
    for (const std::size_t copy : {0U, 1U}) image_.flip(journal_copy(lost, copy) * 8 + 999);
    // The second time the store is as it was left by the first.
    for (const std::uint64_t time : {std::uint64_t{1}, std::uint64_t{2}}) {
      const auto store = open_image();
      for (std::uint64_t key = 0; key < count; ++key) {
        const auto found = get(*store, key);
        const bool is_later = key > lost || (key == 0 && lost < 9);
        ASSERT_EQ(found.has_value(), is_later) << "page " << key << " time " << time;
        if (found) {
          EXPECT_EQ(*found, content(key, key == 0 ? 2 : 1));
        }
      }
      EXPECT_EQ(store->usage().pages, (lost < 9 ? 5U : 0U) + time - 1);
      if (time == 1) {
        EXPECT_GE(store->state().health.lost, lost);
      }
      EXPECT_EQ(store->state().damaged_blocks, time == 1 ? 2U : 0U);
      ASSERT_TRUE(put(*store, 50 + time, 1));
    }
    image_.restore(whole);
  }
}

/// A pair that was written elsewhere: its place is as it was before. While the machine has not
/// ended, it is as lost as a damaged one.
TEST_F(NvmeJournalTest, ServesNoPageThatAPairWrittenElsewhereHasChanged) {
  image_.clear(journal_copy(5, 0), 2 * block);
  const auto store = open_image();
  for (std::uint64_t key = 1; key < count; ++key) EXPECT_EQ(get(*store, key).has_value(), key > 5);
  EXPECT_EQ(get(*store, 0).value(), content(0, 2));
  EXPECT_GE(store->state().health.lost, 5U);
}

/// After a crash of the machine, the last writes may have arrived in any order, or not at all.
TEST_F(NvmeJournalTest, PassesOverWhatFollowsAPairThatNeverArrived) {
  image_.clear(journal_copy(5, 0), 2 * block);
  for (std::size_t number = 0; number < 10; ++number) {
    for (const std::size_t copy : {0U, 1U}) {
      if (number != 5) image_.write_in_an_earlier_boot(journal_copy(number, copy));
    }
  }
  for (int time = 0; time < 2; ++time) {
    const auto store = open_image();
    for (std::uint64_t key = 0; key < count; ++key) {
      const auto found = get(*store, key);
      ASSERT_EQ(found.has_value(), key < 5) << key;
      if (found) {
        EXPECT_EQ(*found, content(key, 1));
      }
    }
    EXPECT_EQ(store->state().health.lost, time == 0 ? 4U : 0U);
    EXPECT_TRUE(put(*store, 50, 1));
  }
}

TEST_F(NvmeJournalTest, ReadsTheOtherCopyOfABlockThatCannotBeRead) {
  for (const std::size_t copy : {0U, 1U}) {
    image_.spoil(copy * block, block, EIO, 0);
    image_.spoil(journal_copy(3, copy), block, EIO, 0);
    const auto store = open_image();
    expect_all(*store);
    EXPECT_GT(image_.bad_reads(), 0U);
    EXPECT_EQ(store->state().health.lost, 0U);
    EXPECT_EQ(store->state().damaged_blocks, 2U);
    EXPECT_TRUE(put(*store, 10, 1));
    image_.heal();
  }
}

TEST_F(NvmeJournalTest, MendsACopyThatIsDamagedBeforeTheOtherIs) {
  for (const std::size_t copy : {0U, 1U, 0U, 1U}) {
    image_.flip(journal_copy(5, copy) * 8 + 77);
    const auto store = open_image();
    expect_all(*store);
    EXPECT_EQ(store->state().damaged_blocks, 1U);
  }
  EXPECT_EQ(open_image()->state().damaged_blocks, 0U);
}

TEST_F(NvmeJournalTest, ReadsOnWhereNothingCanBeMended) {
  image_.spoil(block, block, EIO, EIO);
  const auto store = open_image();
  expect_all(*store);
  EXPECT_THAT(store->state().degraded, HasSubstr("the disk says 5"));
  EXPECT_EQ(put(*store, 1, 2).error().code, Errc::io_error);
}

TEST_F(NvmeJournalTest, MakesNoContainerWhereItsBeginningCannotBeRead) {
  const std::vector<std::byte> whole = image_.copy();
  image_.spoil(0, 2 * block, EIO, 0);
  const auto refused = try_to_open_image();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::io_error);
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("the disk says 5"));
  EXPECT_EQ(image_.copy(), whole);
  image_.heal();
  expect_all(*open_image());
}

/// The directory of pages that were put so long ago that the journal no longer has them.
TEST_F(NvmeImageTest, CountsThePagesOfADamagedSnapshotOnce) {
  constexpr std::uint64_t count = 40;  // each a pair: from 33 on, half of the journal is used
  {
    const auto store = open_image();
    for (std::uint64_t key = 0; key < count; ++key) ASSERT_TRUE(put(*store, key, 1));
  }
  image_.flip(snapshot(2) * 8 + 5000);
  std::uint64_t missing = 0;
  {
    const auto store = open_image();
    for (std::uint64_t key = 0; key < count; ++key) missing += get(*store, key) ? 0U : 1U;
    EXPECT_GT(missing, 0U);
    EXPECT_EQ(store->state().health.lost, missing);
    EXPECT_EQ(store->state().health.corrupt, missing);
    EXPECT_EQ(store->state().damaged_blocks, 1U);
    EXPECT_EQ(store->usage().pages, count - missing);
  }
  const auto store = open_image();
  EXPECT_EQ(store->state().health.lost, 0U);
  EXPECT_EQ(store->state().damaged_blocks, 0U);
  EXPECT_EQ(store->usage().pages, count - missing);
}

TEST_F(NvmeImageTest, PutsNoPageWhereOneCouldNotBeReadOrWritten) {
  const auto store = open_image();
  for (const std::uint64_t key : {1U, 2U, 3U}) ASSERT_TRUE(put(*store, key, 1));
  // Pages lie in order, in whole blocks.
  const std::size_t second = first_page + rounded(1);
  image_.spoil(second, rounded(2), EIO, EIO);
  EXPECT_EQ(get(*store, 2).error().code, Errc::io_error);
  ASSERT_TRUE(erase(*store, 2));
  image_.spoil(second + rounded(2) + rounded(3), block, EIO, EIO);
  for (std::uint64_t key = 4; key < 60; ++key) ASSERT_TRUE(put(*store, key, 1)) << key;
  EXPECT_EQ(image_.bad_writes(), 1U);
  EXPECT_EQ(store->state().degraded, "");
  EXPECT_EQ(store->health(), (StoreHealth{.bad_places = 2}));
  for (std::uint64_t key = 4; key < 60; ++key) EXPECT_EQ(get(*store, key).value(), content(key, 1));
}

TEST_F(NvmeImageTest, WritesNoMoreWhereNoPlaceTakesAPage) {
  const auto store = open_image();
  image_.fail_with(0, EIO);
  EXPECT_EQ(put(*store, 1, 1).error().code, Errc::io_error);
  EXPECT_THAT(store->state().degraded, HasSubstr("the disk says 5"));
  EXPECT_FALSE(store->health().writes);
}

/// The same few calls, which end at the first write, at the second one, and so on.
TEST_F(NvmeImageTest, HasAfterTheEndAtEachWriteInTurnWhatWasPutBefore) {
  constexpr std::uint64_t keys = 6;
  constexpr std::uint64_t calls = 60;  // the journal goes round, and a snapshot is written
  const std::vector<std::byte> empty = image_.copy();
  std::size_t ends = 0;
  for (bool ended = true; ended; ++ends) {
    SCOPED_TRACE(ends);
    image_.restore(empty);
    image_.end_with_write(1 + ends);
    std::array<std::vector<std::uint64_t>, keys> allowed;  // versions; 0 = no page
    allowed.fill({0});
    {
      const auto store = open_image();
      for (std::uint64_t call = 0; call < calls && !image_.has_ended(); ++call) {
        const std::uint64_t key = call * call % keys;
        const bool erases = call % 5 == 4;
        static_cast<void>(erases ? erase(*store, key) : put(*store, key, 1 + call));
        if (!image_.has_ended()) allowed[key].clear();
        allowed[key].push_back(erases ? 0 : 1 + call);
      }
    }
    ended = image_.has_ended();
    image_.revive();
    const auto store = open_image();
    std::uint64_t pages = 0;
    std::uint64_t bytes = 0;
    for (std::uint64_t key = 0; key < keys; ++key) {
      const auto found = get(*store, key);
      const auto is_found = [&](std::uint64_t version) {
        return found ? version != 0 && *found == content(key, version) : version == 0;
      };
      ASSERT_TRUE(std::ranges::any_of(allowed[key], is_found)) << "page " << key;
      if (!found) continue;
      ++pages;
      bytes += found->size();
    }
    EXPECT_EQ(store->usage().pages, pages);
    EXPECT_EQ(store->usage().page_bytes, bytes);
    EXPECT_EQ(store->usage().reserved_bytes, 0U);
    EXPECT_EQ(store->state().health.lost, 0U);
  }
  EXPECT_GT(ends, calls) << "each call writes";
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

}  // namespace
}  // namespace terrace::offload
