#include "terrace/tiers/manifest.hpp"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <set>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::tiers {
namespace {

constexpr ChunkKey chunk{.high = 0x0123456789abcdef, .low = 0xfedcba9876543210};
constexpr PartName rows{PartKind::rows, 3, 1};
constexpr PartName index_piece{PartKind::index, 3, 0};
constexpr PartName state{PartKind::state, 0, 7};

Manifest some_manifest() {
  return Manifest::create(chunk, 256, {{state, 100, 3}, {index_piece, 64, 2}, {rows, 16384, 1}}, 77)
      .value();
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(Manifest, IsReadBackAsItWasWritten) {
  const Manifest manifest = some_manifest();
  const auto found = Manifest::read(chunk, manifest.write());
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->chunk(), chunk);
  EXPECT_EQ(found->tokens(), 256U);
  EXPECT_EQ(found->owner(), 77U);
  EXPECT_EQ(found->bytes(), 16548U);
  EXPECT_TRUE(std::ranges::equal(found->parts(), manifest.parts()));
  EXPECT_EQ(found->checksum(), manifest.checksum());
  ASSERT_NE(found->find(index_piece), nullptr);
  EXPECT_EQ(found->find(index_piece)->bytes, 64U);
  EXPECT_EQ(found->find({PartKind::index, 3, 1}), nullptr);
}

TEST(Manifest, HasItsPartsInTheOrderOfTheirNames) {
  const Manifest manifest = some_manifest();
  ASSERT_EQ(manifest.parts().size(), 3U);
  EXPECT_EQ(manifest.parts()[0].name, rows);
  EXPECT_EQ(manifest.parts()[1].name, index_piece);
  EXPECT_EQ(manifest.parts()[2].name, state);
}

TEST(Manifest, IsRefusedIfAChunkCannotHaveItsParts) {
  EXPECT_FALSE(Manifest::create(chunk, 0, {{rows, 1, 1}}));
  EXPECT_FALSE(Manifest::create(chunk, 1, {}));
  EXPECT_FALSE(Manifest::create(chunk, 1, {{index_piece, 1, 1}}));
  EXPECT_FALSE(Manifest::create(chunk, 1, {{rows, 0, 1}}));
  EXPECT_FALSE(Manifest::create(chunk, 1, {{{PartKind{4}, 0, 0}, 1, 1}, {rows, 1, 1}}));
  EXPECT_FALSE(Manifest::create(chunk, 1, {{state, std::uint64_t{1} << 63, 1}, {rows, 1, 1}}));
  const auto twice = Manifest::create(chunk, 1, {{rows, 1, 1}, {state, 1, 1}, {rows, 2, 2}});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message(), "a chunk has two parts rows 3/1");
}

TEST(Manifest, IsFoundDamagedByEachBitThatFlips) {
  std::vector<Part> many;
  for (std::uint32_t layer = 0; layer < 40; ++layer) {
    many.push_back({{PartKind::rows, layer, 0}, 4096, layer * 0x9e3779b97f4a7c15ULL});
  }
  const std::vector<std::vector<std::byte>> all{
      some_manifest().write(), Manifest::create(chunk, 1, {{rows, 1, 0}}).value().write(),
      Manifest::create(chunk, 32, many).value().write()};
  for (std::vector<std::byte> bytes : all) {
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const auto found = Manifest::read(chunk, bytes);
      ASSERT_FALSE(found) << "bit " << bit << " of " << bytes.size() << " bytes";
      ASSERT_EQ(found.error().code, Errc::corrupt);
      bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
    ASSERT_TRUE(Manifest::read(chunk, bytes));
  }
}

TEST(Manifest, IsRefusedIfItIsCutOrLongerOrOfAnotherChunk) {
  std::vector<std::byte> bytes = some_manifest().write();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(Manifest::read(chunk, std::span(bytes).first(size))) << size << " bytes";
  }
  EXPECT_FALSE(Manifest::read({.high = chunk.high, .low = chunk.low + 1}, bytes));
  bytes.push_back({});
  EXPECT_FALSE(Manifest::read(chunk, bytes));
}

/// Puts the right checksum before bytes that were changed.
void seal(std::vector<std::byte>& bytes) {
  const std::uint64_t checksum = XXH3_64bits(bytes.data() + 16, bytes.size() - 16);
  for (std::size_t i = 0; i < 8; ++i) bytes[8 + i] = static_cast<std::byte>(checksum >> 8 * i);
}

TEST(Manifest, OfAnotherVersionIsUnsupported) {
  std::vector<std::byte> bytes = some_manifest().write();
  bytes[16] = std::byte{1};
  seal(bytes);
  const auto found = Manifest::read(chunk, bytes);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Errc::unsupported);
}

/// Whatever bytes a store gives: with the right checksum, too, they are a manifest or refused.
TEST(Manifest, OfAnyBytesIsRefusedOrWrittenAgainAsTheSameBytes) {
  const std::uint64_t seed = fuzz_seed(120);
  Rng rng(seed);
  std::uint64_t accepted = 0;
  for (std::uint64_t step = 0; step < fuzz_steps(); ++step) {
    SCOPED_TRACE(replay(seed, step));
    std::vector<std::byte> bytes = some_manifest().write();
    for (std::uint64_t i = rng.below(3); i > 0; --i) {
      bytes[16 + rng.below(bytes.size() - 16)] = static_cast<std::byte>(rng.below(5));
    }
    if (rng.below(4) == 0) bytes.resize(16 + rng.below(bytes.size()));
    seal(bytes);
    const auto found = Manifest::read(chunk, bytes);
    if (!found) continue;
    ++accepted;
    ASSERT_EQ(found->write(), bytes);
  }
  EXPECT_GT(accepted, 0U);
}

TEST(PartChecksum, IsOfThePartAndItsPlaceAndNotOfTheBytesAlone) {
  const std::vector<std::byte> bytes = bytes_of("keys and values");
  const std::set<std::uint64_t> sums{
      part_checksum(chunk, rows, bytes),
      part_checksum({.high = chunk.high + 1, .low = chunk.low}, rows, bytes),
      part_checksum({.high = chunk.high, .low = chunk.low + 1}, rows, bytes),
      part_checksum(chunk, {PartKind::index, 3, 1}, bytes),
      part_checksum(chunk, {PartKind::rows, 4, 1}, bytes),
      part_checksum(chunk, {PartKind::rows, 3, 2}, bytes),
      part_checksum(chunk, rows, bytes_of("keys and valuet"))};
  EXPECT_EQ(sums.size(), 7U);
  EXPECT_EQ(part_checksum(chunk, rows, bytes), part_checksum(chunk, rows, bytes));
}

TEST(PageKeyOfAPart, IsAnotherForEachPartAndChunk) {
  std::set<PageKey> keys;
  std::size_t count = 0;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const ChunkKey of_chunk{.high = i % 2, .low = i};
    keys.insert(manifest_page_key(of_chunk));
    ++count;
    for (const PartKind kind : {PartKind::rows, PartKind::index, PartKind::state}) {
      for (std::uint32_t layer = 0; layer < 80; ++layer) {
        for (std::uint32_t number = 0; number < 8; ++number, ++count) {
          keys.insert(page_key(of_chunk, {kind, layer, number}));
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), count);
  EXPECT_EQ(page_key(chunk, rows), page_key(chunk, rows));
}

/// Judges a manifest whose parts are in the given states, and intact otherwise.
ChunkVerdict judge(const std::map<PartName, PartState>& states) {
  return some_manifest().judge([&](const Part& part) {
    const auto found = states.find(part.name);
    return found == states.end() ? PartState::intact : found->second;
  });
}

TEST(ChunkVerdict, IsWholeIfAllPartsAreIntact) {
  const ChunkVerdict verdict = judge({});
  EXPECT_EQ(verdict.use, ChunkUse::whole);
  EXPECT_FALSE(verdict.part);
}

TEST(ChunkVerdict, KeepsTheRowsIfTheIndexAloneIsLost) {
  for (const PartState of_index : {PartState::lost, PartState::corrupt, PartState::late}) {
    const ChunkVerdict verdict = judge({{index_piece, of_index}});
    EXPECT_EQ(verdict.use, ChunkUse::without_index);
    EXPECT_EQ(verdict.part, index_piece);
  }
}

TEST(ChunkVerdict, IsAMissWithItsReasonIfAnotherPartIsLost) {
  const std::map<PartState, MissReason> reasons{{PartState::lost, MissReason::evicted},
                                                {PartState::corrupt, MissReason::corrupt},
                                                {PartState::late, MissReason::late}};
  for (const auto& [of_part, reason] : reasons) {
    for (const PartName& part : {rows, state}) {
      for (const PartState of_index : {PartState::intact, PartState::lost}) {
        const ChunkVerdict verdict = judge({{part, of_part}, {index_piece, of_index}});
        EXPECT_EQ(verdict.use, ChunkUse::miss);
        EXPECT_EQ(verdict.reason, reason);
        EXPECT_EQ(verdict.part, part);
      }
    }
  }
}

TEST(PartName, IsWrittenForMessages) {
  EXPECT_EQ(to_string(rows), "rows 3/1");
  EXPECT_EQ(to_string(index_piece), "index 3/0");
  EXPECT_EQ(to_string(state), "state 0/7");
  EXPECT_EQ(to_string(miss_of(MissReason::no_room)), "miss_no_room");
  EXPECT_EQ(to_string(MissReason::other_namespace), "other_namespace");
  EXPECT_EQ(hit_of(Tier::remote), LookUpOutcome::hit_remote);
}

}  // namespace
}  // namespace terrace::tiers
