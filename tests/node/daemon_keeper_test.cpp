// The daemon as the keeper of a runtime's chunks.
#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "node/made_node.hpp"
#include "node/processes.hpp"
#include "terrace/node/daemon_chunks.hpp"
#include "terrace/offload/store_calls.hpp"

namespace terrace::node {
namespace {

using tiers::LookUpOutcome;
using tiers::Published;

constexpr Duration long_enough = std::chrono::seconds{60};

class DaemonKeeper : public ::testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<DaemonChunks> chunks(const Clock* clock = nullptr,
                                                     Duration deadline = long_enough) const {
    return DaemonChunks::create({.client = {.socket = place_.socket(),
                                            .name = "test",
                                            .deadline = deadline,
                                            .pause_first = {},
                                            .pause_longest = {},
                                            .clock = clock},
                                 .writing_deadline = long_enough})
        .value();
  }
  static tiers::FindRequest request(std::span<const tiers::ChunkKey> keys,
                                    tiers::TenantId tenant = {}) {
    return {.root = some_root, .tenant = tenant, .keys = keys};
  }
  static Result<Published> publish(DaemonChunks& chunks, const tiers::ChunkKey& key,
                                   tiers::ChunkLease& lease, tiers::TenantId tenant = {}) {
    return chunks.publish({.root = some_root, .tenant = tenant, .key = key, .tokens = chunk_tokens},
                          {{rows, rows_of(key)}, {state, {std::byte(key.low)}}}, lease);
  }
  static void publish(DaemonChunks& chunks, std::span<const tiers::ChunkKey> keys) {
    const tiers::TenantId tenant = chunks.tenant_of({}).value();
    tiers::ChunkLease lease;
    for (const auto& key : keys) ASSERT_EQ(publish(chunks, key, lease, tenant), Published::written);
  }
  /// Reads some bytes of a chunk's rows from the store of a look-up.
  static Status read(const tiers::LookUp& found, const tiers::ChunkKey& key) {
    constexpr std::size_t begin = 100;
    std::vector<std::byte> bytes(1000);
    PageRequest get{.verb = PageVerb::get_part,
                    .key = tiers::page_key(key, rows),
                    .data = bytes.data(),
                    .bytes = bytes.size(),
                    .offset = begin};
    TERRACE_TRY(found.lease.held()->store()->submit({&get, 1}));
    TERRACE_TRY(get.status);
    const std::vector<std::byte> expected = rows_of(key);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin() + begin));
    return {};
  }

  NodePlace place_;
  std::vector<tiers::ChunkKey> keys_ = some_keys(4);
};

TEST_F(DaemonKeeper, FindsReadsAndPublishes) {
  RunningDaemon daemon(place_.options());
  const auto writer = chunks();
  publish(*writer, keys_);
  const auto reader = chunks();
  const tiers::TenantId tenant = reader->tenant_of({}).value();
  const tiers::LookUp found = reader->find_run(request(keys_, tenant), 4 * chunk_tokens);
  ASSERT_EQ(found.run.size(), keys_.size());
  EXPECT_EQ(found.outcome, LookUpOutcome::hit_nvme);
  EXPECT_TRUE(found.lease.is_live());
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    EXPECT_EQ(found.run[i].chunk(), keys_[i]);
    EXPECT_EQ(found.run[i].tokens(), chunk_tokens);
    EXPECT_TRUE(read(found, keys_[i]));
    EXPECT_EQ(found.lease.held()->read(found.run[i], *found.run[i].find(rows)).value(),
              rows_of(keys_[i]));
  }
  const tiers::ChunkCounters counters = reader->counters();
  EXPECT_EQ(counters.look_ups.look_ups, 1U);
  EXPECT_EQ(counters.look_ups[LookUpOutcome::hit_nvme], 1U);
  EXPECT_EQ(counters.tokens_found, 4 * chunk_tokens);
  // Parts do not stay in the daemon's memory for a lease that lives on.
  wait_for_counter(*place_.client(), "memory.held_bytes", 0);
}

TEST_F(DaemonKeeper, HasSamplesOfTheAttentionMassCounted) {
  const auto keeper = chunks();
  keeper->note_mass(0.75);  // without a daemon nobody counts it, and nobody waits
  RunningDaemon daemon(place_.options());
  const tiers::TenantId tenant = keeper->tenant_of({}).value();
  keeper->note_mass(0.75);
  static_cast<void>(keeper->find_run(request(keys_, tenant), 1));
  keeper->note_mass(0.25);
  keeper->note_mass(1);
  const auto client = place_.client();
  wait_for_counter(*client, "mass.samples", 2);
  EXPECT_EQ(counter(*client, "mass.millionths"), 1'250'000U);
}

TEST_F(DaemonKeeper, LeasesThoseOfSomeChunksThatAreThere) {
  RunningDaemon daemon(place_.options());
  const auto keeper = chunks();
  const tiers::TenantId tenant = keeper->tenant_of({}).value();
  tiers::ChunkLease lease;
  ASSERT_TRUE(publish(*keeper, keys_[1], lease, tenant));
  ASSERT_TRUE(publish(*keeper, keys_[2], lease, tenant));
  EXPECT_TRUE(lease.covers(keys_[1]) && lease.covers(keys_[2]));
  const tiers::ChunkLease leased = keeper->lease(request(keys_, tenant)).value();
  EXPECT_THAT(leased.chunks(), ::testing::ElementsAre(keys_[1], keys_[2]));
  const auto last = keeper->find_last(request(keys_, tenant));
  ASSERT_TRUE(last && *last);
  EXPECT_EQ((*last)->manifest.chunk(), keys_[2]);
  EXPECT_EQ((*last)->lease.held()->read((*last)->manifest, *(*last)->manifest.find(rows)).value(),
            rows_of(keys_[2]));
  EXPECT_FALSE(keeper->find_last(request({&keys_[3], 1}, tenant)).value().has_value());
  EXPECT_EQ(counter(*place_.client(), "look_ups"), 0U) << "none of them counts";
}

TEST_F(DaemonKeeper, UsesAPrefixSoThatItsEndGoesFirst) {
  DaemonOptions options = place_.options();
  options.file.bytes = std::uint64_t{1} << 20;
  RunningDaemon daemon(options);
  const auto keeper = chunks();
  const tiers::TenantId tenant = keeper->tenant_of({}).value();
  publish(*keeper, keys_);
  keeper->touch(request(keys_, tenant));
  const auto client = place_.client();
  for (std::uint64_t next = 1000; counter(*client, "chunks.evicted") == 0; ++next) {
    tiers::ChunkLease lease;
    ASSERT_TRUE(publish(*keeper, some_keys(1, next)[0], lease, tenant));
  }
  const tiers::LookUp found = keeper->find_run(request(keys_, tenant), 1);
  EXPECT_EQ(found.outcome, LookUpOutcome::partial);
  EXPECT_EQ(found.run.size(), keys_.size() - counter(*client, "chunks.evicted"));
}

TEST_F(DaemonKeeper, KeepsTenantsApart) {
  RunningDaemon daemon(place_.options());
  const auto keeper = chunks();
  const tiers::TenantId mine = keeper->tenant_of(tiers::TenantSalt("mine")).value();
  const tiers::TenantId yours = keeper->tenant_of(tiers::TenantSalt("yours")).value();
  EXPECT_EQ(keeper->tenant_of(tiers::TenantSalt("mine")).value(), mine);
  EXPECT_NE(mine, yours);
  tiers::ChunkLease lease;
  ASSERT_TRUE(publish(*keeper, keys_[0], lease, mine));
  EXPECT_EQ(keeper->find_run(request({&keys_[0], 1}, mine), 32).run.size(), 1U);
  EXPECT_EQ(keeper->find_run(request({&keys_[0], 1}, yours), 32).run.size(), 0U);
  EXPECT_FALSE(keeper->tenant_of(tiers::TenantSalt(std::string(1025, 's'))).has_value());
}

TEST_F(DaemonKeeper, HasConnectionsOfFewTenantsAtATime) {
  RunningDaemon daemon(place_.options());
  const auto keeper = chunks();
  std::vector<tiers::LookUp> kept;
  for (int i = 0; i < 100; ++i) {
    const auto tenant = keeper->tenant_of(tiers::TenantSalt(std::to_string(i))).value();
    tiers::ChunkLease lease;
    ASSERT_TRUE(publish(*keeper, keys_[0], lease, tenant));
    tiers::LookUp found = keeper->find_run(request({&keys_[0], 1}, tenant), 32);
    ASSERT_EQ(found.run.size(), 1U);
    if (i < 3) kept.push_back(std::move(found));
  }
  for (const tiers::LookUp& found : kept) EXPECT_TRUE(read(found, keys_[0])) << "a lease lives on";
  const auto client = place_.client();
  wait_for_counter(*client, "clients", 2 * 32 + kept.size() + 1);
}

TEST_F(DaemonKeeper, RenewsLeasesOfThoseThatDoNothing) {
  ManualClock clock;
  DaemonOptions options = place_.options();
  options.clock = &clock;
  options.lease = std::chrono::minutes{10};
  RunningDaemon daemon(options);
  const auto keeper = chunks(&clock);
  publish(*keeper, keys_);
  const tiers::TenantId tenant = keeper->tenant_of({}).value();
  const tiers::LookUp found = keeper->find_run(request(keys_, tenant), 1);
  for (int minutes = 0; minutes < 60; minutes += 4) {
    clock.advance(std::chrono::minutes{4});
    daemon->look_at_clock();
    keeper->renew_leases();
  }
  EXPECT_TRUE(found.lease.is_live());
  EXPECT_TRUE(read(found, keys_[3]));
  // Without a renewal it ends, and its parts cannot be read any more.
  clock.advance(std::chrono::minutes{11});
  daemon->look_at_clock();
  keeper->renew_leases();
  EXPECT_FALSE(found.lease.is_live());
  const Status refused = read(found, keys_[3]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::io_error);
  wait_for_counter(*place_.client(), "leases", 0);
}

TEST_F(DaemonKeeper, RenewsByAThreadOfItsOwn) {
  ManualClock clock;
  DaemonOptions options = place_.options();
  options.clock = &clock;
  options.lease = std::chrono::milliseconds{60};  // so that the thread looks often
  RunningDaemon daemon(options);
  const auto keeper = chunks(&clock);
  publish(*keeper, keys_);
  const tiers::TenantId tenant = keeper->tenant_of({}).value();
  const tiers::LookUp found = keeper->find_run(request(keys_, tenant), 1);
  const auto client = place_.client();
  wait_for_counter(*client, "leases", 1);
  for (int i = 0; i < 5; ++i) {
    std::uint64_t mine = counter(*client, "requests");
    clock.advance(options.lease / 2);
    // Until there is a request beside those that ask for the counter.
    while (counter(*client, "requests") == mine + 1) ++mine;
  }
  daemon->look_at_clock();
  EXPECT_TRUE(found.lease.is_live());
  EXPECT_TRUE(read(found, keys_[0]));
}

TEST_F(DaemonKeeper, GoesOnWithoutADaemonAndFindsItAgain) {
  std::optional<RunningDaemon> daemon(std::in_place, place_.options());
  const auto keeper = chunks();
  publish(*keeper, keys_);
  const tiers::TenantId tenant = keeper->tenant_of({}).value();
  const tiers::LookUp before = keeper->find_run(request(keys_, tenant), 1);
  daemon.reset();
  EXPECT_FALSE(before.lease.is_live());
  EXPECT_EQ(read(before, keys_[0]).error().code, Errc::io_error);
  EXPECT_EQ(keeper->find_run(request(keys_, tenant), 1).outcome, LookUpOutcome::miss_late);
  EXPECT_FALSE(keeper->lease(request(keys_, tenant)).has_value());
  EXPECT_FALSE(keeper->find_last(request(keys_, tenant)).has_value());
  keeper->touch(request(keys_, tenant));
  tiers::ChunkLease lease;
  EXPECT_FALSE(publish(*keeper, keys_[0], lease, tenant).has_value());
  daemon.emplace(place_.options());
  const tiers::LookUp after = keeper->find_run(request(keys_, tenant), 1);
  EXPECT_EQ(after.run.size(), keys_.size());
  EXPECT_TRUE(read(after, keys_[0]));
  EXPECT_EQ(read(before, keys_[0]).error().code, Errc::io_error) << "its lease has ended for good";
}

TEST_F(DaemonKeeper, WaitsForADaemonThatStandsStillNoLongerThanItsDeadline) {
  {
    RunningDaemon daemon(place_.options());
    publish(*chunks(), keys_);
  }
  const DaemonProcess daemon(place_.options());
  const auto keeper = chunks(nullptr, std::chrono::milliseconds{50});
  const tiers::TenantId tenant = keeper->tenant_of({}).value();
  tiers::LookUp found = keeper->find_run(request(keys_, tenant), 1);
  while (found.run.empty()) found = keeper->find_run(request(keys_, tenant), 1);
  daemon.stop();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(keeper->find_run(request(keys_, tenant), 1).outcome, LookUpOutcome::miss_late);
    const Status late = read(found, keys_[0]);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, Errc::not_ready) << "the lease lives: it may come";
  }
  daemon.go_on();
  while (!read(found, keys_[0])) {
  }
  while (keeper->find_run(request(keys_, tenant), 1).run.empty()) {
  }
}

TEST_F(DaemonKeeper, IsReadByManyThreadsUnderOneLease) {
  DaemonOptions options = place_.options();
  options.client.bytes = 3 * row_bytes;  // so that parts have to leave
  RunningDaemon daemon(options);
  const auto keeper = chunks();
  publish(*keeper, keys_);
  const tiers::TenantId tenant = keeper->tenant_of({}).value();
  const tiers::LookUp found = keeper->find_run(request(keys_, tenant), 1);
  ASSERT_EQ(found.run.size(), keys_.size());
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::size_t i = 0; i < 50; ++i) {
        const Status copied = read(found, keys_[(i + thread) % keys_.size()]);
        EXPECT_TRUE(copied) << copied.error().message();
        if (i % 10 == 0) {
          EXPECT_EQ(keeper->find_run(request(keys_, tenant), 1).run.size(), 4U);
        }
        if (i % 10 == 5) keeper->renew_leases();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  wait_for_counter(*place_.client(), "leases", 1);
  EXPECT_EQ(keeper->counters().look_ups.look_ups, 4 * 5 + 1U);
}

TEST_F(DaemonKeeper, IsReadAlone) {
  RunningDaemon daemon(place_.options());
  const auto keeper = chunks();
  publish(*keeper, keys_);
  const tiers::LookUp found = keeper->find_run(request(keys_, keeper->tenant_of({}).value()), 1);
  const std::shared_ptr<Store> store = found.lease.held()->store();
  EXPECT_EQ(store->usage().pages, 2 * keys_.size());
  std::vector<std::byte> bytes(row_bytes);
  const PageKey page = tiers::page_key(keys_[0], rows);
  const auto status_of = [&](PageRequest request) {
    EXPECT_TRUE(store->submit({&request, 1}));
    return request.status ? Errc{} : request.status.error().code;
  };
  PageRequest get{.verb = PageVerb::get, .key = page, .data = bytes.data(), .bytes = bytes.size()};
  EXPECT_EQ(status_of(get), Errc{});
  EXPECT_EQ(bytes, rows_of(keys_[0]));
  get.bytes -= 1;
  EXPECT_EQ(status_of(get), Errc::invalid_argument);
  get.verb = PageVerb::get_part;
  get.offset = 2;
  EXPECT_EQ(status_of(get), Errc::invalid_argument);
  get.verb = PageVerb::put;
  EXPECT_EQ(status_of(get), Errc::unsupported);
  EXPECT_EQ(status_of({.verb = PageVerb::erase, .key = page}), Errc::unsupported);
  EXPECT_EQ(status_of({.verb = PageVerb::find, .key = {.high = 9}}), Errc::invalid_argument);
  PageRequest find{.verb = PageVerb::find, .key = page};
  EXPECT_TRUE(store->submit({&find, 1}));
  EXPECT_EQ(find.bytes, row_bytes);
}

TEST_F(DaemonKeeper, ReadsMoreAtOnceThanTheDaemonHasRoomFor) {
  DaemonOptions options = place_.options();
  options.client.bytes = 3 * row_bytes;
  RunningDaemon daemon(options);
  const auto keeper = chunks();
  const auto keys = some_keys(20);
  publish(*keeper, keys);
  const auto client = place_.client();
  const auto lease = client->lease(keys);
  ASSERT_TRUE(lease) << lease.error().message();
  std::vector<std::vector<std::byte>> targets(keys.size(), std::vector<std::byte>(row_bytes));
  std::vector<DaemonCopy> copies;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    copies.push_back({.part = {.chunk = i, .name = rows}, .target = targets[i]});
  }
  client->copy(lease->lease, copies);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(copies[i].status) << copies[i].status.error().message();
    EXPECT_EQ(targets[i], rows_of(keys[i]));
  }
}

}  // namespace
}  // namespace terrace::node
