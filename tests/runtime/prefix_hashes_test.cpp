// Prefixes that are named by hashes of an engine's own blocks.
#include <gmock/gmock.h>

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/prefixes.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Scenario;
using testing::prefixes::found_by;
using testing::prefixes::keep_prefixes;
using testing::prefixes::kept;
using testing::prefixes::publish;
using testing::prefixes::publish_and_step;
using testing::prefixes::Shelf;
using testing::prefixes::tokens_of;

constexpr std::size_t hash_bytes = 20;
constexpr std::size_t hash_tokens = 16;

/// Hashes of so many blocks. The first one begins with a byte.
std::vector<std::byte> hashes_of(std::size_t blocks, std::byte first = std::byte{1}) {
  std::vector<std::byte> hashes(blocks * hash_bytes);
  for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = static_cast<std::byte>(i * 7 % 251);
  hashes.front() = first;
  return hashes;
}

PrefixQuery named_by(std::span<const std::byte> hashes) {
  return {.hashes = {.values = hashes, .bytes = hash_bytes, .tokens = hash_tokens}};
}

class PrefixHashNames : public ::testing::Test {
 protected:
  PrefixHashNames() { keep_prefixes(scenario_, shelf_); }

  Shelf shelf_;
  Scenario scenario_;
};

TEST_F(PrefixHashNames, FindTheSameRowsAsIds) {
  const std::vector<std::byte> hashes = hashes_of(kept / hash_tokens + 1);
  const auto expected = publish_and_step(scenario_, named_by(hashes));
  EXPECT_EQ(found_by(scenario_, named_by(hashes)), kept);
  const auto runtime = scenario_.open();
  auto opened = runtime->open_sequence(named_by(hashes));
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const testing::Traffic traffic(scenario_.runtime.shape, 1);
  testing::Drive drive(*std::move(opened), *runtime, traffic);
  ASSERT_TRUE(drive.steps(testing::prefixes::step_count).has_value());
  EXPECT_EQ(drive.outputs(), expected);
}

TEST_F(PrefixHashNames, FindNothingOfOtherHashesSaltsOrIds) {
  const std::vector<std::byte> hashes = hashes_of(kept / hash_tokens);
  ASSERT_EQ(publish(scenario_, named_by(hashes)).tokens, kept);
  EXPECT_EQ(found_by(scenario_, named_by(hashes_of(kept / hash_tokens, std::byte{2}))), 0U);
  PrefixQuery salted = named_by(hashes);
  salted.salt = "a tenant's";
  EXPECT_EQ(found_by(scenario_, salted), 0U);
  PrefixQuery larger = named_by(hashes);
  larger.hashes.tokens = 2 * hash_tokens;
  EXPECT_EQ(found_by(scenario_, larger), 0U);
  const std::vector<TokenId> tokens = tokens_of(kept);
  EXPECT_EQ(found_by(scenario_, {.tokens = tokens}), 0U);
  const std::vector<std::byte> fewer = hashes_of(kept / hash_tokens - 1);
  EXPECT_EQ(found_by(scenario_, named_by(fewer)), kept - testing::prefixes::chunk_tokens);
}

TEST_F(PrefixHashNames, NameATailOfBlocks) {
  const std::vector<std::byte> hashes = hashes_of(kept / hash_tokens + 1);
  PrefixQuery all = named_by(hashes);
  all.with_tail = true;
  ASSERT_EQ(publish(scenario_, all).tokens, kept + hash_tokens);
  EXPECT_EQ(found_by(scenario_, all), kept + hash_tokens);
}

TEST_F(PrefixHashNames, ThatFitNoChunksAreRefused) {
  const auto runtime = scenario_.open();
  const testing::Traffic traffic(scenario_.runtime.shape, 1);
  testing::Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(kept).has_value());
  const std::vector<std::byte> hashes = hashes_of(kept / hash_tokens);
  const std::vector<TokenId> tokens = tokens_of(kept);
  const auto expect_refused = [&](const PrefixQuery& query, const char* why) {
    const auto opened = runtime->open_sequence(query);
    ASSERT_FALSE(opened.has_value()) << why;
    EXPECT_EQ(opened.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(opened.error().message()), ::testing::HasSubstr(why));
    const auto published = drive.sequence().publish(query);
    ASSERT_FALSE(published.has_value()) << why;
    EXPECT_THAT(std::string(published.error().message()), ::testing::HasSubstr(why));
  };
  PrefixQuery query = named_by(hashes);
  query.tokens = tokens;
  expect_refused(query, "tokens and hashes");
  for (const std::size_t bytes : {std::size_t{0}, hash_bytes - 1}) {
    query = named_by(hashes);
    query.hashes.bytes = bytes;
    expect_refused(query, "bytes each");
  }
  query = named_by(hashes);
  query.hashes.bytes = hashes.size();
  expect_refused(query, "at most 64");
  for (const std::size_t count : {std::size_t{0}, hash_tokens - 1}) {
    query = named_by(hashes);
    query.hashes.tokens = count;
    expect_refused(query, "no whole hashes");
  }
  const std::vector<std::byte> more = hashes_of(kept / hash_tokens + 1);
  const auto published = drive.sequence().publish(named_by(more));
  ASSERT_FALSE(published.has_value());
  EXPECT_THAT(std::string(published.error().message()),
              ::testing::HasSubstr("304 tokens of a sequence that has 288"));
}

}  // namespace
}  // namespace terrace
