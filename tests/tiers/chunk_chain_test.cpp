#include "terrace/tiers/chunk_chain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"
#include "tiers/namespaces.hpp"

namespace terrace::tiers {
namespace {

using Tokens = std::vector<TokenId>;

Digest root_of(const Namespace& name) { return name.digest().value(); }

ChunkChain chain_of(const Digest& root, std::size_t chunk_tokens, CallerHashes hashes = {}) {
  return ChunkChain::create({.root = root, .chunk_tokens = chunk_tokens, .hashes = hashes}).value();
}

Tokens tokens_of(std::initializer_list<std::uint32_t> numbers) {
  Tokens tokens;
  for (const std::uint32_t number : numbers) tokens.push_back(TokenId{number});
  return tokens;
}

std::vector<std::string> names_of(std::span<const ChunkKey> keys) {
  std::vector<std::string> names;
  for (const ChunkKey& key : keys) names.push_back(to_string(key));
  return names;
}

// With field() and num() of namespace_test.cpp, and `root` the digest of some_namespace():
// def link(before, kind, bytes, tokens, units): return hashlib.sha256(field(b"terrace chunk 1")
//   + field(kind) + num(bytes) + num(tokens) + field(before) + field(units)).digest()
// four = lambda *ids: b"".join(i.to_bytes(4, 'little') for i in ids)
// one = link(root, b"tokens", 4, 1, four(1, 2, 3, 4))
// two = link(one, b"tokens", 4, 1, four(5, 6, 7, 0xffffffff))
// one.hex()[:32], two.hex()[:32]
TEST(ChunkChain, HasTheKeysThatAnotherSha256Gives) {
  ChunkChain chain = chain_of(root_of(some_namespace()), 4);
  ASSERT_TRUE(chain.append(tokens_of({1, 2, 3, 4, 5, 6, 7, 0xffffffff})));
  EXPECT_EQ(names_of(chain.keys()), (std::vector<std::string>{"01cd8dcc1b0fc14de1471cb5b42a1418",
                                                              "1a0f1d9431981a34815e258a6b33e78f"}));
}

// hash = lambda i: bytes([i]) * 16
// one = link(root, b"hashes", 16, 2, hash(1) + hash(2))
// two = link(one, b"hashes", 16, 2, hash(3) + hash(4))
TEST(ChunkChain, HasTheSameKeysOfHashesThatACallerBrings) {
  ChunkChain chain = chain_of(root_of(some_namespace()), 4, {.bytes = 16, .tokens = 2});
  std::vector<std::byte> hashes;
  for (int i = 1; i <= 4; ++i) hashes.insert(hashes.end(), 16, static_cast<std::byte>(i));
  ASSERT_TRUE(chain.append_hashes(hashes));
  EXPECT_EQ(chain.tokens(), 8U);
  EXPECT_EQ(names_of(chain.keys()), (std::vector<std::string>{"e9b8b904f20ba7ae83d4dbf21fc58fdd",
                                                              "4da893ddbeb09bc65a901f1be4540ff6"}));
}

TEST(ChunkChain, ReturnsTheKeysOfChunksThatHaveBecomeFull) {
  ChunkChain chain = chain_of(root_of(some_namespace()), 4);
  EXPECT_TRUE(chain.append(tokens_of({1, 2, 3})).value().empty());
  const auto one = chain.append(tokens_of({4}));
  ASSERT_EQ(one->size(), 1U);
  EXPECT_EQ(to_string(one->front()), "01cd8dcc1b0fc14de1471cb5b42a1418");
  EXPECT_TRUE(chain.append({}).value().empty());
  EXPECT_EQ(chain.append(tokens_of({5, 6, 7, 8, 9, 10, 11, 12, 13})).value().size(), 2U);
  EXPECT_EQ(chain.tokens(), 13U);
}

TEST(ChunkChain, SharesNoKeyBetweenSaltsNorBetweenChunksOfOtherPrefixes) {
  Namespace other = some_namespace();
  other.salt = TenantSalt("another");
  std::set<ChunkKey> keys;
  std::size_t count = 0;
  for (const Digest& root : {root_of(some_namespace()), root_of(other)}) {
    for (const std::uint32_t first : {1U, 2U}) {
      ChunkChain chain = chain_of(root, 4);
      ASSERT_TRUE(chain.append(tokens_of({first, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8})));
      keys.insert(chain.keys().begin(), chain.keys().end());
      count += chain.keys().size();
    }
  }
  EXPECT_EQ(count, 12U);
  EXPECT_EQ(keys.size(), count);
}

TEST(ChunkChain, RefusesWhatItIsNotOver) {
  const Digest root = root_of(some_namespace());
  EXPECT_FALSE(ChunkChain::create({.root = root, .chunk_tokens = 0}));
  EXPECT_FALSE(
      ChunkChain::create({.root = root, .chunk_tokens = ChunkChain::chunk_tokens_max + 1}));
  EXPECT_FALSE(
      ChunkChain::create({.root = root, .chunk_tokens = 4, .hashes = {.bytes = 16, .tokens = 3}}));
  EXPECT_FALSE(
      ChunkChain::create({.root = root, .chunk_tokens = 4, .hashes = {.bytes = 16, .tokens = 0}}));
  EXPECT_FALSE(
      ChunkChain::create({.root = root, .chunk_tokens = 4, .hashes = {.bytes = 65, .tokens = 2}}));
  ChunkChain of_tokens = chain_of(root, 4);
  ChunkChain of_hashes = chain_of(root, 4, {.bytes = 16, .tokens = 2});
  const std::vector<std::byte> bytes(16);
  EXPECT_FALSE(of_tokens.append_hashes(bytes));
  EXPECT_FALSE(of_hashes.append(tokens_of({1})));
  EXPECT_FALSE(of_hashes.append_hashes(std::span(bytes).first(15)));
  ASSERT_TRUE(of_hashes.append_hashes(bytes));
  EXPECT_FALSE(of_hashes.truncate(1));
  EXPECT_FALSE(of_hashes.fork(4));
  EXPECT_EQ(of_hashes.tokens(), 2U);
}

/// Chains that grow by pieces, are cut and forked have the keys of chains of the same tokens that
/// were made at once.
TEST(ChunkChain, HasKeysThatDependOnItsTokensAlone) {
  const std::uint64_t seed = fuzz_seed(119);
  Rng rng(seed);
  const Digest root = root_of(some_namespace());
  ChunkChain chain = chain_of(root, 5);
  Tokens model;
  for (std::uint64_t step = 0; step < fuzz_steps() / 10; ++step) {
    SCOPED_TRACE(replay(seed, step));
    const std::uint64_t verb = rng.below(8);
    if (verb < 5) {
      Tokens piece(rng.below(12));
      std::ranges::generate(piece, [&] { return TokenId{static_cast<std::uint32_t>(rng())}; });
      const std::size_t before = chain.keys().size();
      const auto added = chain.append(piece);
      ASSERT_TRUE(added);
      ASSERT_EQ(added->size(), chain.keys().size() - before);
      model.insert(model.end(), piece.begin(), piece.end());
    } else {
      const std::size_t tokens = rng.below(model.size() + 1);
      if (verb == 5) {
        ASSERT_TRUE(chain.truncate(tokens));
      } else {
        chain = chain.fork(tokens).value();
      }
      model.resize(tokens);
    }
    ChunkChain at_once = chain_of(root, 5);
    ASSERT_TRUE(at_once.append(model));
    ASSERT_TRUE(std::ranges::equal(chain.keys(), at_once.keys()));
    ASSERT_EQ(chain.tokens(), model.size());
    ASSERT_EQ(chain.keys().size(), model.size() / 5);
    ASSERT_FALSE(chain.truncate(model.size() + 1));
  }
}

TEST(ChunkChain, LeavesTheChainThatItWasForkedFromAsItWas) {
  ChunkChain chain = chain_of(root_of(some_namespace()), 2);
  ASSERT_TRUE(chain.append(tokens_of({1, 2, 3, 4, 5})));
  ChunkChain forked = chain.fork(3).value();
  ASSERT_TRUE(forked.append(tokens_of({9})));
  EXPECT_EQ(forked.keys()[0], chain.keys()[0]);
  EXPECT_NE(forked.keys()[1], chain.keys()[1]);
  EXPECT_EQ(chain.tokens(), 5U);
}

}  // namespace
}  // namespace terrace::tiers
