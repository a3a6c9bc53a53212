// Clients of three tenants, one of them far over its quota, that look up, read and publish without
// end, while clients and their daemon are killed, stand still and come back.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "contract/fuzz.hpp"
#include "node/made_node.hpp"
#include "node/processes.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::node {
namespace {

struct Tenant {
  std::string salt;
  std::uint64_t variant;  ///< of its rows' bytes
  std::uint64_t keys;     ///< that it publishes
};
/// The quota has room for all keys of the first two.
const std::array tenants{Tenant{"careful", 1, 20}, Tenant{"", 2, 20}, Tenant{"greedy", 3, 4000}};
constexpr std::uint64_t quota = std::uint64_t{1} << 17;

/// The words of a client to the test.
constexpr std::uint64_t nothing = 1;
constexpr std::uint64_t published = 2;  ///< and the number of the key
constexpr std::uint64_t wrong_bytes = ~std::uint64_t{0};

std::unique_ptr<DaemonClient> hasty_client(const NodePlace& place, const Tenant& tenant) {
  return DaemonClient::create({.socket = place.socket(),
                               .name = "soak",
                               .salt = tiers::TenantSalt(tenant.salt),
                               .deadline = std::chrono::milliseconds{200},
                               .pause_first = std::chrono::milliseconds{1},
                               .pause_longest = std::chrono::milliseconds{10}})
      .value();
}

/// Whether all that could be read of a look-up are the tenant's own bytes.
bool reads_right(DaemonClient& client, const DaemonLookUp& found, const Tenant& tenant) {
  for (std::uint32_t i = 0; i < found.run.size(); ++i) {
    const auto read = read_rows(client, found, i);
    if (!read || !found.lease.is_live()) continue;
    if (*read != rows_of(found.run[i].key, tenant.variant)) return false;
  }
  return true;
}

void live(const NodePlace& place, const Tenant& tenant, Rng rng, int to) {
  const auto client = hasty_client(place, tenant);
  std::vector<DaemonLookUp> kept;
  for (;;) {
    const std::uint64_t number = rng.below(tenant.keys);
    if (rng.below(3) == 0) {
      const auto state = publish(*client, some_keys(1, 1 + number)[0], nullptr, tenant.variant);
      const bool is_there = state && *state != tiers::Published::under_way;
      ChildProcess::tell(to, is_there ? published + number : nothing);
      continue;
    }
    kept.push_back(find(*client, some_keys(1 + rng.below(4), 1 + number)));
    const bool right = reads_right(*client, kept[rng.below(kept.size())], tenant);
    if (kept.size() > 8) kept.erase(kept.begin());
    ChildProcess::tell(to, right ? nothing : wrong_bytes);
  }
}

class Soak {
 public:
  explicit Soak(std::uint64_t seed) : rng_(seed) {
    start_daemon();
    for (std::size_t i = 0; i < clients_.size(); ++i) start_client(i);
  }

  void take_event() {
    switch (rng_.below(8)) {
      case 0:
        daemon_->kill();
        start_daemon();
        break;
      case 1:
        daemon_->stop();
        listen(1);
        daemon_->go_on();
        break;
      case 2:
      case 3:
        start_client(rng_.below(clients_.size()));
        break;
      default:
        listen(1 + rng_.below(20));
    }
  }

  /// All that was published by those within their quota is there, and nothing else is held.
  void expect_nothing_is_lost() {
    for (auto& client : clients_) client = nullptr;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto client = place_.client(tenants[i].salt);
      wait_for_counter(*client, "reservations", 0);
      wait_for_counter(*client, "leases", 0);
      for (const std::uint64_t number : published_[i]) {
        const auto key = some_keys(1, 1 + number);
        const DaemonLookUp found = find(*client, key);
        ASSERT_EQ(found.run.size(), 1U) << tenants[i].salt << " " << number;
        const auto read = read_rows(*client, found, 0);
        ASSERT_TRUE(read.has_value()) << read.error().message();
        EXPECT_EQ(*read, rows_of(key[0], tenants[i].variant));
      }
      EXPECT_FALSE(published_[i].empty());
    }
    expect_sums();
  }

 private:
  void start_daemon() {
    DaemonOptions options = place_.options();
    options.quotas.of_each = quota;
    daemon_ = nullptr;
    daemon_ = std::make_unique<DaemonProcess>(options);
  }

  void start_client(std::size_t i) {
    clients_[i] = nullptr;
    const Tenant& tenant = tenants[i % tenants.size()];
    clients_[i] = std::make_unique<ChildProcess>(
        [&, rng = Rng(rng_.below(1U << 30U))](int to) { live(place_, tenant, rng, to); });
  }

  /// Hears so many words of each client.
  void listen(std::size_t words) {
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      for (std::size_t heard = 0; heard < words; ++heard) {
        const std::uint64_t word = clients_[i]->hear();
        ASSERT_NE(word, 0U) << "client " << i << " has ended";
        ASSERT_NE(word, wrong_bytes) << "client " << i;
        if (word >= published) published_[i % tenants.size()].insert(word - published);
      }
    }
  }

  void expect_sums() {
    const auto client = place_.client();
    const auto counters = client->stats().value();
    std::uint64_t ended = 0;
    for (const DaemonCounter& each : counters) {
      if (each.name.starts_with("look_ups.")) ended += each.value;
    }
    EXPECT_EQ(ended, counter(*client, "look_ups"));
    EXPECT_LE(counter(*client, "chunks.bytes"), tenants.size() * quota);
    EXPECT_EQ(counter(*client, "memory.held_bytes"), 0U);
  }

  Rng rng_;
  NodePlace place_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::array<std::unique_ptr<ChildProcess>, 5> clients_;
  std::array<std::set<std::uint64_t>, tenants.size()> published_;
};

TEST(DaemonSoak, LosesNothingAndServesNoWrongByte) {
  const std::uint64_t seed = fuzz_seed(11);
  Soak soak(seed);
  const std::uint64_t events = 30 + fuzz_steps() / 100;
  for (std::uint64_t event = 0; event < events && !::testing::Test::HasFailure(); ++event) {
    SCOPED_TRACE(replay(seed, event));
    soak.take_event();
  }
  if (!::testing::Test::HasFailure()) soak.expect_nothing_is_lost();
}

}  // namespace
}  // namespace terrace::node
