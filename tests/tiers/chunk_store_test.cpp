#include "terrace/tiers/chunk_store.hpp"

#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <vector>

#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"

namespace terrace::tiers {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr Duration deadline = std::chrono::seconds{10};
constexpr std::uint32_t tokens = 256;
constexpr ChunkKey first{.high = 1, .low = 10};
constexpr ChunkKey second{.high = 1, .low = 20};
constexpr ChunkKey third{.high = 1, .low = 30};
constexpr PartName rows{.kind = PartKind::rows, .layer = 3};
constexpr PartName index{.kind = PartKind::index, .layer = 3};

std::vector<PartBytes> parts_of(int value) {
  return {{rows, std::vector<std::byte>(300, std::byte(value))},
          {index, std::vector<std::byte>(40, std::byte(value + 1))}};
}

class Chunks : public ::testing::Test {
 protected:
  Status publish(const ChunkKey& chunk, int value) {
    const auto parts = std::make_shared<std::vector<PartBytes>>(parts_of(value));
    return chunks_.publish(chunk, tokens, parts).map([](const Manifest&) {});
  }
  std::size_t run_of(std::vector<ChunkKey> chunks) {
    return chunks_.find_run(chunks).value().chunks.size();
  }
  /// Why the run of one chunk ends before it.
  Errc error_of(const ChunkKey& chunk) {
    return chunks_.find_run({&chunk, 1}).value().end.value().code;
  }
  std::vector<bool> there(std::vector<ChunkKey> chunks) {
    std::vector<bool> all;
    const auto manifests = chunks_.manifests(chunks).value();
    for (const auto& manifest : manifests) all.push_back(manifest.has_value());
    return all;
  }
  /// Erases all pages that a chunk of these tests has.
  void erase(const ChunkKey& chunk) {
    const auto erasing =
        chunks_.start_erasing(ChunkStore::pages_of(chunk, std::array{rows, index}));
    ASSERT_TRUE(erasing && erasing->done.wait(deadline));
  }
  /// Changes a page of the store to other bytes, of the same or another number.
  void overwrite(const PageKey& key, std::vector<std::byte> bytes) {
    offload::StoreCalls calls(store_, deadline);
    ASSERT_TRUE(calls.write({{key, std::move(bytes)}}));
  }

  std::shared_ptr<doubles::FaultStore> store_ =
      std::make_shared<doubles::FaultStore>(std::make_unique<doubles::MemoryStore>());
  ChunkStore chunks_{store_, deadline};
};

TEST_F(Chunks, AreFoundWholeAndReadAsTheyWere) {
  ASSERT_TRUE(publish(first, 1));
  const std::vector<Manifest> run = chunks_.find_run(std::vector{first}).value().chunks;
  ASSERT_THAT(run, SizeIs(1));
  EXPECT_EQ(run[0].tokens(), tokens);
  EXPECT_EQ(chunks_.read(run[0], *run[0].find(rows)).value(), parts_of(1)[0].bytes);
  EXPECT_EQ(chunks_.read(run[0], *run[0].find(index)).value(), parts_of(1)[1].bytes);
}

TEST_F(Chunks, AreARunFromTheFront) {
  ASSERT_TRUE(publish(first, 1));
  ASSERT_TRUE(publish(third, 3));
  EXPECT_THAT(there({first, second, third}), ElementsAre(true, false, true));
  EXPECT_EQ(run_of({first, second, third}), 1U);
  EXPECT_EQ(run_of({second, third}), 0U);
  EXPECT_EQ(run_of({}), 0U);
  ASSERT_TRUE(publish(second, 2));
  EXPECT_EQ(run_of({first, second, third}), 3U);
}

TEST_F(Chunks, AreNotThereBeforeTheirManifest) {
  store_->arm({.verb = PageVerb::put, .nth = 3});  // the manifest's
  EXPECT_FALSE(publish(first, 1));
  EXPECT_EQ(run_of({first}), 0U);
  EXPECT_EQ(store_->usage().pages, 0U) << "nothing is left of a chunk that was not published";
}

TEST_F(Chunks, AreAMissWithoutOneOfTheirParts) {
  for (const PartName lost : {rows, index}) {
    ASSERT_TRUE(publish(first, 1));
    offload::StoreCalls calls(store_, deadline);
    const PageKey key = page_key(first, lost);
    ASSERT_TRUE(calls.erase({&key, 1}));
    EXPECT_EQ(run_of({first}), 0U);
    EXPECT_EQ(error_of(first), Errc::invalid_argument) << to_string(lost);
    erase(first);
    EXPECT_EQ(store_->usage().pages, 0U) << to_string(lost);
  }
}

TEST_F(Chunks, AreAMissWithAnotherManifestOrAPartOfAnotherSize) {
  ASSERT_TRUE(publish(first, 1));
  ASSERT_TRUE(publish(second, 2));
  overwrite(page_key(first, rows), std::vector<std::byte>(299));
  EXPECT_EQ(error_of(first), Errc::corrupt);
  offload::StoreCalls calls(store_, deadline);
  const auto others = calls.read(manifest_page_key(second)).value();
  overwrite(manifest_page_key(first), others);
  EXPECT_EQ(error_of(first), Errc::corrupt);
  EXPECT_THAT(there({first, second}), ElementsAre(false, true));
}

TEST_F(Chunks, SayOfAnErrorThatMayPassThatItIsOne) {
  ASSERT_TRUE(publish(first, 1));
  for (const PageVerb verb : {PageVerb::find, PageVerb::get}) {
    store_->arm({.verb = verb, .probability = 1});
    EXPECT_EQ(error_of(first), Errc::io_error);
  }
  store_->arm({});
  EXPECT_EQ(run_of({first}), 1U);
}

TEST_F(Chunks, SayOfDamagedPartsThatTheyAreCorrupt) {
  ASSERT_TRUE(publish(first, 1));
  const std::vector<Manifest> run = chunks_.find_run(std::vector{first}).value().chunks;
  std::vector<std::byte> damaged = parts_of(1)[0].bytes;
  damaged[17] ^= std::byte{4};
  overwrite(page_key(first, rows), damaged);
  const auto read = chunks_.read(run[0], *run[0].find(rows));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::corrupt);
}

TEST_F(Chunks, GoAsAWhole) {
  ASSERT_TRUE(publish(first, 1));
  erase(first);
  EXPECT_EQ(store_->usage().pages, 0U);
  EXPECT_EQ(error_of(first), Errc::invalid_argument);
}

}  // namespace
}  // namespace terrace::tiers
