// Limits of clients, time, versions, users, and clients that do not read.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "node/made_node.hpp"
#include "node/processes.hpp"
#include "node/raw_client.hpp"
#include "server/listener.hpp"

namespace terrace::node {
namespace {

std::string message_of(const Error& error) { return std::string(error.message()); }

TEST(DaemonLimits, LeasesOfAClientAreCounted) {
  NodePlace place;
  DaemonOptions options = place.options();
  options.client.leases = 2;
  RunningDaemon daemon(options);
  const auto client = place.client();
  const auto keys = some_keys(1);
  ASSERT_TRUE(publish(*client, keys[0]));
  const DaemonLookUp one = find(*client, keys);
  {
    const DaemonLookUp two = find(*client, keys);
    const DaemonLookUp three = find(*client, keys);
    ASSERT_TRUE(three.error);
    EXPECT_EQ(three.error->code, Errc::out_of_memory);
    EXPECT_EQ(find(*place.client(), keys).run.size(), 1U);  // another client has its own
  }
  EXPECT_FALSE(find(*client, keys).error);
}

TEST(DaemonLimits, BytesThatALeaseHoldsAreCounted) {
  NodePlace place;
  DaemonOptions options = place.options();
  options.client.bytes = 2 * row_bytes + 500;  // and the list of the chunks' parts
  RunningDaemon daemon(options);
  const auto client = place.client();
  const auto keys = some_keys(3);
  for (const auto& key : keys) ASSERT_TRUE(publish(*client, key));
  const DaemonLookUp found = find(*client, keys);
  EXPECT_TRUE(read_rows(*client, found, 0));
  EXPECT_TRUE(read_rows(*client, found, 1));
  EXPECT_EQ(read_rows(*client, found, 2).error().code, Errc::out_of_memory);
  EXPECT_TRUE(read_rows(*client, found, 1));  // it holds this one already
}

TEST(DaemonLimits, ListsOfPartsThatLeasesHoldAreCounted) {
  NodePlace place;
  DaemonOptions options = place.options();
  options.client.bytes = 4000;
  RunningDaemon daemon(options);
  const auto client = place.client();
  const auto keys = some_keys(1);
  ASSERT_TRUE(publish(*client, keys[0]));
  std::vector<DaemonLookUp> kept;
  while (kept.empty() || !kept.back().error) kept.push_back(find(*client, keys));
  EXPECT_EQ(kept.back().error->code, Errc::out_of_memory);
  kept.clear();
  EXPECT_FALSE(find(*client, keys).error);
  const auto many = some_keys(8193);
  EXPECT_EQ(find(*client, many).error->code, Errc::invalid_argument);
}

wire::Reserve reserve_of(std::uint64_t key, std::uint64_t bytes) {
  return {.root = some_root,
          .key = {.high = key},
          .tokens = chunk_tokens,
          .parts = {{.name = rows, .bytes = bytes}}};
}

TEST(DaemonLimits, ReservationsAreCountedAndEndByCancelOrWithTheClient) {
  NodePlace place;
  DaemonOptions options = place.options();
  options.client.reservations = 2;
  options.client.bytes = 1 << 20;
  RunningDaemon daemon(options);
  const auto watcher = place.client();
  {
    RawClient client(place.socket());
    ASSERT_TRUE(client.greet());
    std::vector<std::uint64_t> reservations;
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(client.send(wire::Kind::reserve, 10 + i, reserve_of(i, 1000)));
      const auto reply = client.receive();
      if (i < 2) {
        ASSERT_EQ(reply->header.status, 0U);
        reservations.push_back(wire::read_body<wire::ReserveReply>(reply->body)->reservation);
      } else {
        EXPECT_EQ(wire::code_of(reply->header.status), Errc::out_of_memory);
      }
    }
    EXPECT_EQ(counter(*watcher, "reservations"), 2U);
    client.send(wire::Kind::cancel, 20, wire::ReservationNumber{reservations[0]});
    ASSERT_EQ(client.receive()->header.status, 0U);
    EXPECT_EQ(counter(*watcher, "reservations"), 1U);
    client.send(wire::Kind::reserve, 21, reserve_of(3, 2 << 20));  // above the client's bytes
    EXPECT_EQ(wire::code_of(client.receive()->header.status), Errc::out_of_memory);
    client.send(wire::Kind::commit, 22, wire::ReservationNumber{99});
    EXPECT_EQ(wire::code_of(client.receive()->header.status), Errc::not_ready);
  }
  wait_for_counter(*watcher, "reservations", 0);
}

TEST(DaemonLimits, ALeaseEndsWithoutAUse) {
  NodePlace place;
  ManualClock clock;
  DaemonOptions options = place.options();
  options.lease = std::chrono::seconds{60};
  options.clock = &clock;
  RunningDaemon daemon(options);
  const auto client =
      DaemonClient::create(
          {.socket = place.socket(), .deadline = std::chrono::seconds{60}, .clock = &clock})
          .value();
  const auto keys = some_keys(1);
  ASSERT_TRUE(publish(*client, keys[0]));
  const DaemonLookUp unused = find(*client, keys);
  const DaemonLookUp used = find(*client, keys);
  clock.advance(std::chrono::seconds{40});
  ASSERT_TRUE(read_rows(*client, used, 0));
  clock.advance(std::chrono::seconds{40});
  daemon->look_at_clock();
  EXPECT_FALSE(unused.lease.is_live());
  EXPECT_TRUE(used.lease.is_live());
  wait_for_counter(*client, "leases", 1);
  EXPECT_EQ(read_rows(*client, unused, 0).error().code, Errc::not_ready);
  EXPECT_TRUE(client->renew(used.lease));
  clock.advance(std::chrono::seconds{40});
  EXPECT_TRUE(used.lease.is_live());
  EXPECT_EQ(read_rows(*client, used, 0).value(), rows_of(keys[0]));
}

TEST(DaemonLimits, AReservationEndsWithItsTimeToo) {
  NodePlace place;
  ManualClock clock;
  DaemonOptions options = place.options();
  options.lease = std::chrono::seconds{60};
  options.clock = &clock;
  RunningDaemon daemon(options);
  const auto watcher = place.client();
  RawClient client(place.socket());
  ASSERT_TRUE(client.greet());
  client.send(wire::Kind::reserve, 2, reserve_of(1, 1000));
  const auto reply = client.receive();
  EXPECT_EQ(counter(*watcher, "reservations"), 1U);
  clock.advance(std::chrono::seconds{61});
  daemon->look_at_clock();
  wait_for_counter(*watcher, "reservations", 0);
}

TEST(DaemonLimits, ClientsThatSayNothingAreClosed) {
  NodePlace place;
  ManualClock clock;
  DaemonOptions options = place.options();
  options.clock = &clock;
  RunningDaemon daemon(options);
  RawClient silent(place.socket());
  RawClient wrong(place.socket());
  wrong.send(wire::Kind::stats, 1, wire::Nothing{});
  EXPECT_TRUE(wrong.is_closed());  // so the daemon has taken both
  clock.advance(std::chrono::seconds{6});
  daemon->look_at_clock();
  EXPECT_TRUE(silent.is_closed());
  EXPECT_THAT(daemon.lines(), ::testing::HasSubstr("its first message was no hello"));
}

TEST(DaemonLimits, OneClientTooManyIsRefused) {
  NodePlace place;
  DaemonOptions options = place.options();
  options.clients = 2;
  RunningDaemon daemon(options);
  const auto one = place.client();
  const auto two = place.client();
  ASSERT_TRUE(one->connect());
  ASSERT_TRUE(two->connect());
  EXPECT_EQ(place.client()->connect().error().code, Errc::not_ready);
  EXPECT_EQ(counter(*one, "clients.refused"), 1U);
}

TEST(DaemonLimits, ClientsOfAnotherVersionAreToldSo) {
  NodePlace place;
  RunningDaemon daemon(place.options());
  RawClient client(place.socket());
  client.send(wire::Kind::hello, 1, wire::Hello{.version_first = 2, .version_last = 9});
  const auto reply = client.receive();
  ASSERT_TRUE(reply);
  const Error error = wire::read_error(reply->header, reply->body);
  EXPECT_EQ(error.code, Errc::unsupported);
  EXPECT_THAT(message_of(error), ::testing::HasSubstr("versions 1 to 1"));
  EXPECT_TRUE(client.is_closed());
  RawClient newer(place.socket());  // that speaks the old version, too
  newer.send(wire::Kind::hello, 1, wire::Hello{.version_first = 1, .version_last = 9});
  EXPECT_EQ(wire::read_body<wire::HelloReply>(newer.receive()->body)->version, 1U);
}

TEST(DaemonLimits, AClientOfAnotherVersionSaysSo) {
  NodePlace place;
  Listener listener;
  ASSERT_TRUE(listener.open(place.socket(), false));
  std::thread newer([&] {  // a daemon that speaks version 2 alone
    pollfd waiting{.fd = listener.descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, -1);
    const auto client = listener.accept();
    // A socket that is closed with bytes unread resets the connection: the hello is read first.
    std::vector<std::byte> hello;
    waiting.fd = client->socket.get();
    ::poll(&waiting, 1, -1);
    EXPECT_TRUE(receive_some(client->socket, 65536, hello, nullptr));
    OutgoingFrame frame{
        .bytes = wire::make_error_frame(
            wire::Kind::hello, 1, make_error(Errc::unsupported, "the daemon speaks version 2"))};
    EXPECT_TRUE(send_some(client->socket, frame));
  });
  const auto client = place.client();
  const Status connected = client->connect();
  newer.join();
  EXPECT_EQ(connected.error().code, Errc::unsupported);
  EXPECT_THAT(message_of(connected.error()), ::testing::HasSubstr("speaks version 2"));
}

TEST(DaemonLimits, AClientThatDoesNotReadDelaysNobody) {
  NodePlace place;
  RunningDaemon daemon(place.options());
  const auto other = place.client();
  ASSERT_TRUE(publish(*other, some_keys(1)[0]));
  RawClient deaf(place.socket());
  ASSERT_TRUE(deaf.greet());
  // Until the daemon takes no more of its requests.
  std::uint64_t sent = 0;
  while (deaf.send(wire::Kind::stats, 100 + sent, wire::Nothing{})) ++sent;
  EXPECT_EQ(find(*other, some_keys(1)).run.size(), 1U);
  EXPECT_TRUE(publish(*other, some_keys(1, 50)[0]));
  for (std::uint64_t i = 0; i < sent; ++i) {
    const auto reply = deaf.receive();
    ASSERT_TRUE(reply);
    ASSERT_EQ(reply->header.request, 100 + i);
  }
}

/// The daemon has few descriptors: some connections are refused, and those that are there go on.
TEST(DaemonLimits, DescriptorsThatRunOutCostNewClientsAlone) {
  NodePlace place;
  const auto client = place.client();
  DaemonOptions options = place.options();
  DaemonProcess daemon(options, [] {
    const rlimit few{.rlim_cur = 40, .rlim_max = 40};
    ::setrlimit(RLIMIT_NOFILE, &few);
  });
  ASSERT_TRUE(publish(*client, some_keys(1)[0]));
  {
    std::vector<std::unique_ptr<RawClient>> crowd;
    for (int i = 0; i < 60; ++i) {
      crowd.push_back(std::make_unique<RawClient>(place.socket()));
      crowd.back()->greet();  // an answer, or the end
    }
    EXPECT_GT(counter(*client, "clients.refused"), 0U);
    EXPECT_EQ(find(*client, some_keys(1)).run.size(), 1U);
    // Memory for a chunk takes a descriptor.
    const auto published = publish(*client, some_keys(1, 9)[0]);
    EXPECT_TRUE(published || published.error().code == Errc::out_of_memory);
  }
  wait_for_counter(*client, "clients", 1);
  EXPECT_TRUE(publish(*client, some_keys(1, 9)[0]));
}

TEST(DaemonLimits, ASecondDaemonIsRefused) {
  NodePlace place;
  RunningDaemon daemon(place.options());
  DaemonOptions other = place.options();
  other.file.path = place.folder() / "other";
  const auto second = Daemon::open(other);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::not_ready);
  EXPECT_THAT(message_of(second.error()), ::testing::HasSubstr("another terraced"));
  EXPECT_TRUE(place.client()->connect());  // the first one's socket is as it was
}

TEST(DaemonLimits, FoldersThatOthersMayWriteToAreRefused) {
  NodePlace place;
  DaemonOptions options = place.options();
  const std::string folder = place.folder() / "open";
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  options.socket = folder + "/terraced.sock";
  EXPECT_EQ(Daemon::open(options).error().code, Errc::invalid_argument);
  options.socket = place.folder() / "made/terraced.sock";
  const RunningDaemon daemon(options);
  struct stat found{};
  ASSERT_EQ(::stat((place.folder() / "made").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
  ASSERT_EQ(::stat(options.socket.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
}

TEST(DaemonLimits, OtherUsersConnectIfTheyAreNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be other users";
  constexpr std::uint32_t named = 12'345;
  constexpr std::uint32_t stranger = 12'346;
  NodePlace place;
  ASSERT_EQ(::chmod(place.folder().path().c_str(), 0711), 0);
  DaemonOptions options = place.options();
  options.allow_users = {named};
  const auto try_as = [&](std::uint32_t user) {
    ChildProcess process([&](int to) {
      if (::setuid(user) != 0) return;
      ChildProcess::tell(to, place.client()->connect() ? 1 : 2);
    });
    return process.hear();
  };
  RunningDaemon daemon(options);
  EXPECT_EQ(try_as(named), 1U);
  EXPECT_EQ(try_as(stranger), 2U);
  EXPECT_THAT(daemon.lines(), ::testing::HasSubstr("daemon.allow_users has not its user"));
}

TEST(DaemonLimits, ADaemonOfAnotherUserGetsNoSalt) {
  NodePlace place;
  RunningDaemon daemon(place.options());
  const auto client = DaemonClient::create({.socket = place.socket(),
                                            .salt = tiers::TenantSalt("salt"),
                                            .daemon_user = ::geteuid() + 1})
                          .value();
  EXPECT_EQ(client->connect().error().code, Errc::unsupported);
}

}  // namespace
}  // namespace terrace::node
