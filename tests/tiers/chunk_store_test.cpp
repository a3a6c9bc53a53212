#include "terrace/tiers/chunk_store.hpp"

#include <gmock/gmock.h>

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
  std::size_t run_of(std::vector<ChunkKey> chunks) {
    return chunks_.find_run(chunks).value().size();
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
  ASSERT_TRUE(chunks_.publish(first, tokens, parts_of(1)));
  const std::vector<Manifest> run = chunks_.find_run(std::vector{first}).value();
  ASSERT_THAT(run, SizeIs(1));
  EXPECT_EQ(run[0].tokens(), tokens);
  EXPECT_EQ(chunks_.read(run[0], *run[0].find(rows)).value(), parts_of(1)[0].bytes);
  EXPECT_EQ(chunks_.read(run[0], *run[0].find(index)).value(), parts_of(1)[1].bytes);
}

TEST_F(Chunks, AreARunFromTheFront) {
  ASSERT_TRUE(chunks_.publish(first, tokens, parts_of(1)));
  ASSERT_TRUE(chunks_.publish(third, tokens, parts_of(3)));
  EXPECT_THAT(chunks_.has(std::vector{first, second, third}).value(),
              ElementsAre(true, false, true));
  EXPECT_EQ(run_of({first, second, third}), 1U);
  EXPECT_EQ(run_of({second, third}), 0U);
  EXPECT_EQ(run_of({}), 0U);
  ASSERT_TRUE(chunks_.publish(second, tokens, parts_of(2)));
  EXPECT_EQ(run_of({first, second, third}), 3U);
}

TEST_F(Chunks, AreNotThereBeforeTheirManifest) {
  store_->arm({.verb = PageVerb::put, .nth = 3});  // the manifest's
  EXPECT_FALSE(chunks_.publish(first, tokens, parts_of(1)));
  EXPECT_EQ(run_of({first}), 0U);
  EXPECT_EQ(store_->usage().pages, 0U) << "nothing is left of a chunk that was not published";
}

TEST_F(Chunks, AreAMissForGoodWithoutOneOfTheirParts) {
  for (const PartName lost : {rows, index}) {
    ASSERT_TRUE(chunks_.publish(first, tokens, parts_of(1)));
    offload::StoreCalls calls(store_, deadline);
    const PageKey key = page_key(first, lost);
    ASSERT_TRUE(calls.erase({&key, 1}));
    EXPECT_EQ(run_of({first}), 0U);
    EXPECT_EQ(store_->usage().pages, 0U) << to_string(lost);
  }
}

TEST_F(Chunks, AreAMissWithAnotherManifestOrAPartOfAnotherSize) {
  ASSERT_TRUE(chunks_.publish(first, tokens, parts_of(1)));
  ASSERT_TRUE(chunks_.publish(second, tokens, parts_of(2)));
  overwrite(page_key(first, rows), std::vector<std::byte>(299));
  EXPECT_EQ(run_of({first}), 0U);
  offload::StoreCalls calls(store_, deadline);
  const auto others = calls.read(manifest_page_key(second)).value();
  overwrite(manifest_page_key(first), others);
  EXPECT_EQ(run_of({first}), 0U);
  EXPECT_THAT(chunks_.has(std::vector{first, second}).value(), ElementsAre(false, true));
}

TEST_F(Chunks, SayOfDamagedPartsThatTheyAreCorrupt) {
  ASSERT_TRUE(chunks_.publish(first, tokens, parts_of(1)));
  const std::vector<Manifest> run = chunks_.find_run(std::vector{first}).value();
  std::vector<std::byte> damaged = parts_of(1)[0].bytes;
  damaged[17] ^= std::byte{4};
  overwrite(page_key(first, rows), damaged);
  const auto read = chunks_.read(run[0], *run[0].find(rows));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::corrupt);
}

TEST_F(Chunks, GoAsAWhole) {
  ASSERT_TRUE(chunks_.publish(first, tokens, parts_of(1)));
  const std::vector<Manifest> run = chunks_.find_run(std::vector{first}).value();
  ASSERT_TRUE(chunks_.erase(run[0]));
  EXPECT_EQ(store_->usage().pages, 0U);
}

}  // namespace
}  // namespace terrace::tiers
