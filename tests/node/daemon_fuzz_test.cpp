// A hostile client: messages of any kind with any fields, damaged and cut ones, and any bytes. The
// daemon goes on, other clients' bytes are as they were, and all that the client had is free again.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>

#include "contract/fuzz.hpp"
#include "node/made_node.hpp"
#include "node/raw_client.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::node {
namespace {

class HostileMessages {
 public:
  explicit HostileMessages(std::uint64_t seed) : rng_(seed) {}

  std::vector<std::byte> next() {
    std::vector<std::byte> frame = sound();
    switch (rng_.below(8)) {
      case 0:  // any byte of the body, and rarely of the header: that mostly ends the connection
        if (frame.size() == wire::header_bytes && rng_.below(20) != 0) break;
        frame[frame.size() - 1 -
              rng_.below(rng_.below(20) == 0 ? frame.size() : body_bytes(frame))] =
            static_cast<std::byte>(rng_());
        break;
      case 1:  // any field of small numbers
        for (int i = 0; i < 8; ++i) {
          const std::size_t at = wire::header_bytes + rng_.below(frame.size());
          if (at < frame.size()) frame[at] = static_cast<std::byte>(rng_.below(4));
        }
        break;
      case 2:  // a cut body with a header that fits
        frame.resize(wire::header_bytes + rng_.below(frame.size() - wire::header_bytes + 1));
        set_length(frame, frame.size() - wire::header_bytes);
        break;
      case 3:  // a header that does not fit
        if (rng_.below(50) == 0) set_length(frame, rng_.below(1 << 22));
        break;
      default:
        break;
    }
    return frame;
  }
  std::uint64_t below(std::uint64_t bound) { return rng_.below(bound); }

  /// Remembers the leases and reservations that the daemon names.
  void hear(const RawClient::Message& message) {
    if (message.header.status != 0) return;
    const auto kind = static_cast<wire::Kind>(message.header.kind & ~wire::reply_bit);
    if (kind == wire::Kind::find) {
      const auto reply = wire::read_body<wire::FindReply>(message.body);
      ASSERT_TRUE(reply);
      if (reply->lease != 0) leases_[rng_.below(leases_.size())] = reply->lease;
    } else if (kind == wire::Kind::lease) {
      const auto reply = wire::read_body<wire::LeaseReply>(message.body);
      ASSERT_TRUE(reply);
      if (reply->lease != 0) leases_[rng_.below(leases_.size())] = reply->lease;
    } else if (kind == wire::Kind::reserve) {
      const auto reply = wire::read_body<wire::ReserveReply>(message.body);
      ASSERT_TRUE(reply);
      if (reply->reservation != 0) {
        reservations_[rng_.below(reservations_.size())] = reply->reservation;
      }
    }
  }

 private:
  static std::size_t body_bytes(const std::vector<std::byte>& frame) {
    return std::max<std::size_t>(1, frame.size() - wire::header_bytes);
  }
  static void set_length(std::vector<std::byte>& frame, std::size_t bytes) {
    for (std::size_t i = 0; i < 4; ++i) frame[i] = static_cast<std::byte>(bytes >> (8 * i));
  }
  template <typename Message>
  std::vector<std::byte> made(wire::Kind kind, const Message& message) {
    return wire::make_frame({.kind = static_cast<std::uint8_t>(kind), .request = rng_.below(100)},
                            message);
  }
  std::uint64_t one_of(const std::array<std::uint64_t, 8>& numbers) {
    return rng_.below(8) == 0 ? rng_() : numbers[rng_.below(numbers.size())];
  }
  std::uint64_t lease() { return one_of(leases_); }
  std::uint64_t reservation() { return one_of(reservations_); }
  tiers::ChunkKey key() { return some_keys(1, 1 + rng_.below(8))[0]; }

  std::vector<std::byte> sound() {
    switch (static_cast<wire::Kind>(1 + rng_.below(15))) {
      case wire::Kind::hello:
        // Mostly the end of the connection.
        if (rng_.below(50) == 0) return made(wire::Kind::hello, wire::Hello{});
        return made(wire::Kind::stats, wire::Nothing{});
      case wire::Kind::find: {
        wire::Find message{.root = some_root, .tokens = rng_.below(9)};
        for (std::uint64_t i = rng_.below(5); i > 0; --i) message.keys.push_back(key());
        return made(wire::Kind::find, message);
      }
      case wire::Kind::read: {
        wire::Read message{.lease = lease()};
        for (std::uint64_t i = rng_.below(5); i > 0; --i) {
          message.parts.push_back({.chunk = static_cast<std::uint32_t>(rng_.below(3)),
                                   .name = rng_.below(2) == 0 ? rows : state});
        }
        return made(wire::Kind::read, message);
      }
      case wire::Kind::reserve: {
        wire::Reserve message{.root = some_root,
                              .key = key(),
                              .tokens = static_cast<std::uint32_t>(rng_.below(3)),
                              .lease = rng_.below(2) == 0 ? wire::new_lease : lease()};
        message.parts.push_back(
            {.name = rows, .bytes = rng_.below(9) == 0 ? rng_() : rng_.below(9000)});
        return made(wire::Kind::reserve, message);
      }
      case wire::Kind::commit:
        return made(wire::Kind::commit, wire::ReservationNumber{reservation()});
      case wire::Kind::cancel:
        return made(wire::Kind::cancel, wire::ReservationNumber{reservation()});
      case wire::Kind::renew:
        return made(wire::Kind::renew, wire::LeaseNumber{lease()});
      case wire::Kind::release:
        return made(wire::Kind::release, wire::LeaseNumber{lease()});
      case wire::Kind::lease: {
        wire::Lease message;
        for (std::uint64_t i = rng_.below(5); i > 0; --i) message.keys.push_back(key());
        return made(wire::Kind::lease, message);
      }
      case wire::Kind::let_go:
        return made(wire::Kind::let_go, wire::LeaseNumber{lease()});
      case wire::Kind::note_mass:
        return made(wire::Kind::note_mass, wire::MassSample{rng_.below(2'000'000)});
      case wire::Kind::pin:
        return made(wire::Kind::pin, wire::KeyMessage{key()});
      case wire::Kind::unpin:
        return made(wire::Kind::unpin, wire::KeyMessage{key()});
      default:
        return made(wire::Kind::stats, wire::Nothing{});
    }
  }

  Rng rng_;
  std::array<std::uint64_t, 8> leases_{};
  std::array<std::uint64_t, 8> reservations_{};
};

/// Its own salt, so that what it publishes is nobody else's.
constexpr const char* hostile_salt = "hostile";

bool has_its_length(const std::vector<std::byte>& frame) {
  std::size_t bytes = 0;
  for (std::size_t i = 4; i-- > 0;) bytes = bytes << 8 | std::to_integer<std::size_t>(frame[i]);
  return bytes == frame.size() - wire::header_bytes;
}

/// Returns whether the daemon has answered all that was sent; false: it has closed the connection.
bool wait_for(RawClient& client, FunctionRef<void(const RawClient::Message&)> hear) {
  constexpr std::uint64_t last = 1'000'000;
  client.send(wire::Kind::stats, last, wire::Nothing{});
  for (;;) {
    const auto message = client.receive();
    if (!message) return false;
    if (message->header.request == last) return true;
    hear(*message);
  }
}

TEST(DaemonFuzz, AHostileClientHarmsNobody) {
  const std::uint64_t seed = fuzz_seed(11);
  HostileMessages messages(seed);
  NodePlace place;
  DaemonOptions options = place.options();
  options.client.bytes = 1 << 20;
  RunningDaemon daemon(options);
  const auto client = place.client();
  const auto keys = some_keys(4);
  for (const auto& key : keys) ASSERT_TRUE(publish(*client, key));
  const DaemonLookUp mine = find(*client, keys);
  for (std::uint32_t i = 0; i < keys.size(); ++i) ASSERT_TRUE(read_rows(*client, mine, i));
  auto hostile = std::make_unique<RawClient>(place.socket());
  ASSERT_TRUE(hostile->greet(hostile_salt));
  bool is_in_step = true;
  for (std::uint64_t step = 0; step < fuzz_steps(); ++step) {
    SCOPED_TRACE(replay(seed, step));
    const std::vector<std::byte> frame = messages.next();
    // After a wrong length, or half a message, the daemon waits for what does not come.
    const bool is_whole = hostile->send(frame) && has_its_length(frame);
    is_in_step = is_in_step && is_whole;
    const auto hear = [&](const RawClient::Message& message) { messages.hear(message); };
    bool is_there = hostile->drain(hear);
    // Waits for the daemon now and then: what is sent after a mistake is lost.
    if (is_there && step % 32 == 0) is_there = is_in_step && wait_for(*hostile, hear);
    if (!is_there || messages.below(2000) == 0) {
      hostile = std::make_unique<RawClient>(place.socket());
      is_in_step = true;
      ASSERT_TRUE(hostile->is_connected());
      if (messages.below(8) != 0) hostile->greet(hostile_salt);
    }
    if (step % 500 != 0) continue;
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(read_rows(*client, mine, i).value(), rows_of(keys[i]));
    }
  }
  // It was taken seriously: it read, it published, and it was refused.
  EXPECT_GT(counter(*client, "requests"), fuzz_steps() / 4);
  EXPECT_GT(counter(*client, "requests.failed"), 0U);
  EXPECT_GT(counter(*client, "chunks.published"), keys.size());
  hostile = nullptr;
  wait_for_counter(*client, "clients", 1);
  EXPECT_EQ(counter(*client, "leases"), 1U);
  EXPECT_EQ(counter(*client, "reservations"), 0U);
  EXPECT_EQ(counter(*client, "memory.held_bytes"), keys.size() * row_bytes);
  EXPECT_EQ(find(*client, keys).run.size(), keys.size());
}

}  // namespace
}  // namespace terrace::node
