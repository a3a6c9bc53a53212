#include <gmock/gmock.h>

#include <array>

#include "contract/fuzz.hpp"
#include "protocol/frames.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::node::wire {
namespace {

constexpr tiers::PartName rows{.kind = tiers::PartKind::rows, .layer = 3, .number = 1};

std::span<const std::byte> body_of(const std::vector<std::byte>& frame) {
  return std::span(frame).subspan(header_bytes);
}

Header header_of(const std::vector<std::byte>& frame) {
  return read_header(std::span(frame).first<header_bytes>()).value();
}

std::vector<std::uint8_t> numbers(std::span<const std::byte> bytes) {
  std::vector<std::uint8_t> all;
  for (const std::byte byte : bytes) all.push_back(std::to_integer<std::uint8_t>(byte));
  return all;
}

TEST(Protocol, WritesTheBytesThatThePageOfTheProtocolShows) {
  const auto frame = make_frame({.kind = static_cast<std::uint8_t>(Kind::pin), .request = 7},
                                KeyMessage{.key = {.high = 0x0102030405060708, .low = 9}});
  EXPECT_THAT(numbers(frame),
              ::testing::ElementsAre(16, 0, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,  //
                                     8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(numbers(body_of(make_frame({}, Hello{.name = "a", .salt = "bc"}))),
              ::testing::ElementsAre('t', 'e', 'r', 'r', 'a', 'c', 'e', 'd', 1, 0, 1, 0, 1, 0, 'a',
                                     2, 0, 'b', 'c'));
}

TEST(Protocol, ReadsBackWhatItWrote) {
  ReadReply reply{.retired = {4},
                  .segments = {{.number = 5, .bytes = 4096}},
                  .parts = {{.status = 0, .segment = 5, .offset = 64, .bytes = 300},
                            {.status = status_of(Errc::corrupt)}}};
  const auto read = read_body<ReadReply>(body_of(make_frame({}, reply)));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->retired, reply.retired);
  EXPECT_EQ(read->segments[0].bytes, 4096U);
  EXPECT_EQ(read->parts[0].offset, 64U);
  EXPECT_EQ(code_of(read->parts[1].status), Errc::corrupt);

  FindReply found{.outcome = tiers::LookUpOutcome::partial,
                  .lease = 8,
                  .lists = {{{{.name = rows, .bytes = 300}}}, {}},
                  .chunks = {{.tokens = 32, .list = 0}}};
  const auto same = read_body<FindReply>(body_of(make_frame({}, found)));
  ASSERT_TRUE(same);
  EXPECT_EQ(same->lists[0].parts, found.lists[0].parts);
  EXPECT_EQ(same->chunks[0].tokens, 32U);
}

TEST(Protocol, RefusesEachShorterAndEachLongerBody) {
  Reserve message{.tokens = 32, .parts = {{.name = rows, .bytes = 5}}};
  const auto frame = make_frame({}, message);
  std::vector<std::byte> body(frame.begin() + header_bytes, frame.end());
  EXPECT_TRUE(read_body<Reserve>(body));
  for (std::size_t bytes = 0; bytes < body.size(); ++bytes) {
    EXPECT_FALSE(read_body<Reserve>(std::span(body).first(bytes))) << bytes;
  }
  body.push_back({});
  EXPECT_FALSE(read_body<Reserve>(body));
}

TEST(Protocol, ACountAloneTakesNoMemory) {
  std::vector<std::byte> body(4, std::byte{0xff});  // 2^32 - 1 counters, and none follows
  const auto read = read_body<StatsReply>(body);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::invalid_argument);
}

TEST(Protocol, RefusesHeadersThatNoMessageHas) {
  std::vector<std::byte> frame = make_frame({.kind = 1}, Nothing{});
  EXPECT_TRUE(read_header(std::span(frame).first<header_bytes>()));
  frame[5] = std::byte{1};
  EXPECT_FALSE(read_header(std::span(frame).first<header_bytes>()));
  frame[5] = {};
  frame[3] = std::byte{1};  // 16 MiB
  EXPECT_FALSE(read_header(std::span(frame).first<header_bytes>()));
}

TEST(Protocol, TellsErrorsWithTheirCodesAndTexts) {
  const auto frame =
      make_error_frame(Kind::read, 3, make_error(Errc::out_of_memory, "line one\nline two"));
  const Header header = header_of(frame);
  EXPECT_EQ(header.kind, static_cast<std::uint8_t>(Kind::read) | reply_bit);
  const Error error = read_error(header, body_of(frame));
  EXPECT_EQ(error.code, Errc::out_of_memory);
  EXPECT_EQ(error.message().find('\n'), std::string_view::npos);
  EXPECT_EQ(code_of(999), Errc::io_error);
}

TEST(Protocol, PartsOfAReservationAreApartAndAligned) {
  const std::array parts{SizedPart{.bytes = 1}, SizedPart{.bytes = 64}, SizedPart{.bytes = 65}};
  EXPECT_THAT(*lay_out(parts), ::testing::ElementsAre(0, 64, 128, 193));
  const std::array huge{SizedPart{.bytes = ~std::uint64_t{0}}};
  EXPECT_FALSE(lay_out(huge));
}

/// Whatever bytes come: a message that is read is written as the same bytes.
template <typename Message>
void expect_same_bytes(std::span<const std::byte> body) {
  const auto read = read_body<Message>(body);
  if (!read) return;
  const auto frame = make_frame({}, *read);
  EXPECT_EQ(numbers(body_of(frame)), numbers(body));
}

TEST(Protocol, AnyBytesAreReadAsWhatWritesThem) {
  const std::uint64_t seed = fuzz_seed(21);
  Rng rng(seed);
  for (std::uint64_t step = 0; step < fuzz_steps(); ++step) {
    SCOPED_TRACE(replay(seed, step));
    std::vector<std::byte> body(rng.below(80));
    // Small numbers, so that counts fit now and then.
    for (std::byte& byte : body)
      byte = static_cast<std::byte>(rng.below(4) == 0 ? rng.below(5) : 0);
    expect_same_bytes<Hello>(body);
    expect_same_bytes<Find>(body);
    expect_same_bytes<FindReply>(body);
    expect_same_bytes<Read>(body);
    expect_same_bytes<ReadReply>(body);
    expect_same_bytes<Reserve>(body);
    expect_same_bytes<StatsReply>(body);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace terrace::node::wire
