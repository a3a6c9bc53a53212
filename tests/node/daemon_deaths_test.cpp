// Clients and daemons that are killed or stand still.
#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "contract/fuzz.hpp"
#include "node/made_node.hpp"
#include "node/processes.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::node {
namespace {

using tiers::LookUpOutcome;
using tiers::Published;

/// Looks up, reads and publishes without end, and tells after each step.
void use_without_end(const NodePlace& place, int to) {
  const auto client = place.client();
  std::vector<DaemonLookUp> kept;
  DaemonLease lease;
  for (std::uint64_t step = 1;; ++step) {
    const auto keys = some_keys(4);
    kept.push_back(find(*client, keys));
    for (std::uint32_t i = 0; i < kept.back().run.size(); ++i) {
      static_cast<void>(read_rows(*client, kept.back(), i));
    }
    static_cast<void>(publish(*client, some_keys(1, 1000 + step % 50)[0], &lease));
    if (kept.size() > 20) kept.erase(kept.begin());
    ChildProcess::tell(to, step);
  }
}

TEST(DaemonDeaths, AKilledClientLeavesNothing) {
  const std::uint64_t seed = fuzz_seed(3);
  Rng rng(seed);
  NodePlace place;
  RunningDaemon daemon(place.options());
  const auto client = place.client();
  const auto keys = some_keys(4);
  for (const auto& key : keys) ASSERT_TRUE(publish(*client, key));
  const DaemonLookUp mine = find(*client, keys);
  const std::uint64_t rounds = 2 + fuzz_steps() / 10'000;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE(replay(seed, round));
    ChildProcess other([&](int to) { use_without_end(place, to); });
    for (std::uint64_t step = 1 + rng.below(30); step > 0; --step) ASSERT_NE(other.hear(), 0U);
    other.kill();
    wait_for_counter(*client, "leases", 1);  // mine
    wait_for_counter(*client, "reservations", 0);
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(read_rows(*client, mine, i).value(), rows_of(keys[i]));
    }
    EXPECT_EQ(counter(*client, "memory.held_bytes"), keys.size() * row_bytes);
  }
}

/// Two of them at different keys, killed while the daemon works for them.
TEST(DaemonDeaths, AKilledDaemonHasWhatItSaidWasPublished) {
  const std::uint64_t seed = fuzz_seed(4);
  Rng rng(seed);
  NodePlace place;
  std::vector<tiers::ChunkKey> there;
  const std::uint64_t rounds = 2 + fuzz_steps() / 20'000;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE(replay(seed, round));
    DaemonProcess daemon(place.options());
    const auto client = place.client();
    for (const auto& key : there) {
      const DaemonLookUp found = find(*client, {&key, 1});
      ASSERT_EQ(found.run.size(), 1U);
      ASSERT_EQ(read_rows(*client, found, 0).value(), rows_of(key));
    }
    std::atomic<std::uint64_t> published = 0;
    const std::uint64_t last = 1 + rng.below(20);
    std::thread killer([&] {
      published.wait(0);
      for (std::uint64_t seen = published; seen < last; seen = published) published.wait(seen);
      daemon.kill();
    });
    for (std::uint64_t number = 0;; ++number) {
      const tiers::ChunkKey key = some_keys(1, 1 + 100 * round + number)[0];
      const auto state = publish(*client, key);
      if (!state) break;
      there.push_back(key);
      ++published;
      published.notify_one();
    }
    killer.join();
    // The client goes on without it.
    const DaemonLookUp missed = find(*client, {&there.front(), 1});
    EXPECT_EQ(missed.outcome, LookUpOutcome::miss_late);
    EXPECT_EQ(missed.error->code, Errc::not_ready);
  }
}

TEST(DaemonDeaths, AClientComesBackWhenItsDaemonDoes) {
  NodePlace place;
  const auto keys = some_keys(1);
  auto daemon = std::make_unique<DaemonProcess>(place.options());
  const auto client = place.client();
  ASSERT_TRUE(publish(*client, keys[0]));
  const DaemonLookUp before = find(*client, keys);
  const DaemonPartRequest wanted{.name = rows};
  const auto bytes = client->read(before.lease, {&wanted, 1}).value();
  daemon->kill();
  EXPECT_FALSE(before.lease.is_live());  // without a call
  EXPECT_EQ(client->stats().error().code, Errc::not_ready);
  daemon = nullptr;
  daemon = std::make_unique<DaemonProcess>(place.options());
  const DaemonLookUp after = find(*client, keys);
  ASSERT_EQ(after.run.size(), 1U);
  EXPECT_EQ(read_rows(*client, after, 0).value(), rows_of(keys[0]));
  EXPECT_EQ(client->read(before.lease, {&wanted, 1}).error().code, Errc::not_ready);
  // The old memory is still there, as long as the lease object is.
  EXPECT_EQ(std::vector(bytes[0]->begin(), bytes[0]->end()), rows_of(keys[0]));
}

TEST(DaemonDeaths, ADaemonThatStandsStillIsAMissAndNoWait) {
  NodePlace place;
  const auto keys = some_keys(1);
  DaemonProcess daemon(place.options());
  ASSERT_TRUE(publish(*place.client(), keys[0]));
  ManualClock clock;
  const auto client = DaemonClient::create({.socket = place.socket(),
                                            .deadline = std::chrono::milliseconds{20},
                                            .pause_first = std::chrono::hours{1},
                                            .pause_longest = std::chrono::hours{1},
                                            .clock = &clock})
                          .value();
  while (!client->connect()) clock.advance(std::chrono::hours{1});
  daemon.stop();
  EXPECT_EQ(find(*client, keys).outcome, LookUpOutcome::miss_late);
  // A pause has begun: the next call waits for nothing.
  const DaemonLookUp second = find(*client, keys);
  EXPECT_THAT(std::string(second.error->message()), ::testing::HasSubstr("does not answer"));
  daemon.go_on();
  // The late reply's lease is given back once it has come.
  const auto other = place.client();
  wait_for_counter(*other, "leases", 1);
  while (!client->stats()) clock.advance(std::chrono::hours{1});
  wait_for_counter(*other, "leases", 0);
}

/// Flips a bit of the first byte at which a file has some bytes; returns whether it has them.
bool flip_in_file(const std::string& path, std::span<const std::byte> bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string content(std::istreambuf_iterator<char>(file), {});
  const std::string_view wanted(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t place = content.find(wanted);
  if (place == std::string::npos) return false;
  file.clear();
  file.seekp(static_cast<std::streamoff>(place));
  file.put(static_cast<char>(content[place] ^ 1));
  return file.flush().good();
}

TEST(DaemonDeaths, DamageInTheFileIsAMissAndNeverServed) {
  NodePlace place;
  const auto keys = some_keys(2);
  {
    RunningDaemon daemon(place.options());
    for (const auto& key : keys) ASSERT_TRUE(publish(*place.client(), key));
  }
  ASSERT_TRUE(flip_in_file(place.options().file.path, rows_of(keys[1])));
  RunningDaemon daemon(place.options());
  const auto client = place.client();
  const DaemonLookUp found = find(*client, keys);
  ASSERT_EQ(found.run.size(), 2U);  // nothing was read of it yet
  EXPECT_EQ(read_rows(*client, found, 0).value(), rows_of(keys[0]));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(read_rows(*client, found, 1).error().code, Errc::corrupt);
  }
  EXPECT_EQ(find(*client, keys).run.size(), 1U);
  EXPECT_EQ(find(*client, {&keys[1], 1}).outcome, LookUpOutcome::miss_corrupt);
  EXPECT_EQ(counter(*client, "memory.parts"), 1U);
  EXPECT_EQ(counter(*client, "file.corrupt"), 1U);  // dropped as it was found, and read no more
  EXPECT_EQ(counter(*client, "file.writes"), 1U);
}

TEST(DaemonDeaths, StopEndsWhatIsUnderWayFirst) {
  NodePlace place;
  const auto client = place.client();
  const auto key = some_keys(1)[0];
  {
    RunningDaemon daemon(place.options());
    ASSERT_TRUE(publish(*client, key));
    daemon->stop();
  }
  EXPECT_EQ(client->connect().error().code, Errc::not_ready);
  RunningDaemon daemon(place.options());
  EXPECT_EQ(publish(*client, key).value(), Published::was_there);
}

}  // namespace
}  // namespace terrace::node
