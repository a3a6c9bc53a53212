// A store on one server, which the tests start.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <thread>

#include "offload/remote_pages.hpp"

namespace terrace::offload {
namespace {

using redis::RedisServer;
using redis::wait_until;

class RemoteStoreTest : public RemoteTest {};

Errc code_of(const Status& status) { return status ? Errc{} : status.error().code; }

TEST_F(RemoteStoreTest, GivesBackPagesAndTheirParts) {
  const RedisServer server;
  const auto store = opened(patient(server.address()));
  for (const std::size_t size : {1U, 65'536U, 300'001U}) {
    const PageBytes page = page_of(size, size);
    ASSERT_TRUE(put_page(*store, size, page));
    EXPECT_EQ(get_page(*store, size, size).value(), page);
    EXPECT_EQ(find_page(*store, size).value(), size);
    const std::size_t offset = size / 3;
    const auto part = get_page(*store, size, size - offset, offset, PageVerb::get_part);
    ASSERT_TRUE(part);
    EXPECT_TRUE(std::ranges::equal(*part, std::span(page).subspan(offset)));
  }
  EXPECT_FALSE(store->state().is_cluster);
  EXPECT_EQ(store->state().nodes_ready, 1U);
  EXPECT_EQ(store->usage().pages, 3U);
}

TEST_F(RemoteStoreTest, TakesAnyLengthOfTime) {
  const RedisServer server;
  RemoteStoreOptions options = patient(server.address());
  options.deadline = options.connect_timeout = options.retry_first = options.retry_max =
      Duration::max();
  EXPECT_TRUE(put_page(*opened(options), 1, page_of(1, 100)));
}

TEST_F(RemoteStoreTest, FindsAServerByItsName) {
  const RedisServer server;
  RemoteStoreOptions options = patient(server.address());
  options.server.addresses[0].host = "localhost";
  const auto store = opened(options);
  EXPECT_TRUE(put_page(*store, 1, page_of(1, 100)));
}

TEST_F(RemoteStoreTest, CarriesOutABatchOfAThousand) {
  const RedisServer server;
  const auto store = opened(patient(server.address()));
  std::vector<PageBytes> pages;
  std::vector<PageBytes> found(1000, PageBytes(5000));
  std::vector<PageRequest> puts;
  std::vector<PageRequest> gets;
  for (std::uint64_t key = 0; key < 1000; ++key) pages.push_back(page_of(key, 5000));
  for (std::uint64_t key = 0; key < 1000; ++key) {
    puts.push_back({.verb = PageVerb::put,
                    .key = {.low = key},
                    .data = pages[key].data(),
                    .bytes = 5000,
                    .status = {}});
    gets.push_back({.verb = PageVerb::get,
                    .key = {.low = key},
                    .data = found[key].data(),
                    .bytes = 5000,
                    .status = {}});
  }
  run_batch(*store, puts);
  run_batch(*store, gets);
  for (std::size_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(puts[i].status) << puts[i].status.error().message();
    ASSERT_TRUE(gets[i].status) << gets[i].status.error().message();
    ASSERT_EQ(found[i], pages[i]);
  }
  EXPECT_EQ(store->usage().pages, 1000U);
  EXPECT_EQ(server.client().ask({"DBSIZE"}), "1000");
}

TEST_F(RemoteStoreTest, FindsEachBitThatFlipsInTheServer) {
  const RedisServer server;
  const auto store = opened(patient(server.address()));
  const PageBytes page = page_of(1, 40);
  ASSERT_TRUE(put_page(*store, 1, page));
  auto client = server.client();
  const std::string value = client.ask({"GET", name_of(1)});
  for (std::size_t bit = 0; bit < value.size() * 8; ++bit) {
    client.ask({"SETBIT", name_of(1), std::to_string(bit),
                (value[bit / 8] >> (7 - bit % 8) & 1) != 0 ? "0" : "1"});
    ASSERT_EQ(get_page(*store, 1, 40).error().code, Errc::corrupt) << bit;
    ASSERT_EQ(get_page(*store, 1, 39, 1, PageVerb::get_part).error().code, Errc::corrupt) << bit;
    client.ask({"SET", name_of(1), value});
  }
  EXPECT_EQ(get_page(*store, 1, 40).value(), page);
  EXPECT_EQ(store->state().corrupt, 2 * value.size() * 8);
}

TEST_F(RemoteStoreTest, NeverTakesWhatSomebodyElseWrote) {
  const RedisServer server;
  const auto store = opened(patient(server.address()));
  const PageBytes page = page_of(1, 5000);
  ASSERT_TRUE(put_page(*store, 1, page));
  auto client = server.client();
  const std::string value = client.ask({"GET", name_of(1)});
  client.ask({"SET", name_of(2), value});  // of another key
  client.ask({"SET", name_of(3), value.substr(0, value.size() - 1)});
  client.ask({"SET", name_of(4), value.substr(0, 20)});
  client.ask({"SET", name_of(5), "somebody else's"});
  client.ask({"LPUSH", name_of(6), "a list"});
  for (std::uint64_t key = 2; key <= 6; ++key) {
    EXPECT_EQ(get_page(*store, key, 5000).error().code, Errc::corrupt) << key;
    EXPECT_EQ(find_page(*store, key).error().code, Errc::corrupt) << key;
    EXPECT_EQ(get_page(*store, key, 10, 4990, PageVerb::get_part).error().code, Errc::corrupt);
    EXPECT_TRUE(erase_page(*store, key));
    EXPECT_EQ(get_page(*store, key, 5000).error().code, Errc::invalid_argument);
  }
  client.ask({"LPUSH", name_of(6), "a list"});
  EXPECT_TRUE(put_page(*store, 6, page));
  EXPECT_EQ(get_page(*store, 6, 5000).value(), page);
}

TEST_F(RemoteStoreTest, LetsPagesExpire) {
  const RedisServer server;
  RemoteStoreOptions options = patient(server.address());
  options.ttl = std::chrono::hours(1);
  const auto lasting = opened(options);
  ASSERT_TRUE(put_page(*lasting, 1, page_of(1, 100)));
  const long long left = std::stoll(server.client().ask({"PTTL", name_of(1)}));
  EXPECT_GT(left, 0);
  EXPECT_LE(left, 3'600'000);
  options.ttl = std::chrono::milliseconds(1);
  const auto brief = opened(options);
  ASSERT_TRUE(put_page(*brief, 2, page_of(2, 100)));
  wait_until([&] { return !find_page(*brief, 2).has_value(); }, "the page expires");
  EXPECT_EQ(get_page(*brief, 2, 100).error().code, Errc::invalid_argument);
}

TEST_F(RemoteStoreTest, SendsThePassword) {
  const RedisServer server({.password = "open sesame"});
  server.client().ask({"ACL", "SETUSER", "terrace", "on", ">of the user", "~*", "+@all"});
  RemoteStoreOptions options = patient(server.address());
  options.server.password = "open sesame";
  EXPECT_TRUE(put_page(*opened(options), 1, page_of(1, 100)));
  options.server.user = "terrace";
  options.server.password = "of the user";
  EXPECT_TRUE(put_page(*opened(options), 2, page_of(2, 100)));
}

TEST_F(RemoteStoreTest, ReportsAWrongPasswordAndNeverShowsIt) {
  const RedisServer server({.password = "open sesame"});
  RemoteStoreOptions options = patient(server.address());
  for (const std::string password : {"wrong", ""}) {
    options.server.password = password;
    const auto store = opened(options);
    const Status put = put_page(*store, 1, page_of(1, 100));
    ASSERT_FALSE(put);
    EXPECT_THAT(code_of(put), testing::AnyOf(Errc::io_error, Errc::not_ready));
    const std::string said = store->state().last_failure;
    EXPECT_THAT(said, testing::HasSubstr("refuses"));
    EXPECT_THAT(said, testing::Not(testing::HasSubstr("wrong")));
  }
}

/// A user who may do nothing but what a store needs.
TEST_F(RemoteStoreTest, NeedsFewCommands) {
  const RedisServer server;
  server.client().ask({"ACL", "SETUSER", "terrace", "on", ">secret", "~terrace:*", "+get",
                       "+getrange", "+set", "+strlen", "+unlink"});
  RemoteStoreOptions options = patient(server.address());
  options.server.user = "terrace";
  options.server.password = "secret";
  const auto store = opened(options);
  const PageBytes page = page_of(1, 100);
  ASSERT_TRUE(put_page(*store, 1, page));
  EXPECT_EQ(get_page(*store, 1, 100).value(), page);
  EXPECT_EQ(find_page(*store, 1).value(), 100U);
  EXPECT_TRUE(erase_page(*store, 1));
}

TEST_F(RemoteStoreTest, SaysThatAServerIsFullAndGoesOnWhenItHasRoom) {
  const RedisServer server({.settings = {"--maxmemory-policy", "noeviction"}});
  const auto store = opened(patient(server.address()));
  ASSERT_TRUE(put_page(*store, 1, page_of(1, 100)));
  server.client().ask({"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_EQ(code_of(put_page(*store, 2, page_of(2, 100))), Errc::out_of_memory);
  EXPECT_TRUE(get_page(*store, 1, 100));
  EXPECT_EQ(store->usage().pages, 1U);
  server.client().ask({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_TRUE(put_page(*store, 2, page_of(2, 100)));
}

TEST_F(RemoteStoreTest, ServesAnUnknownServerAtOnceAndForEver) {
  RemoteAddress nobody;
  {
    const RedisServer server;
    nobody = server.address();
  }
  const auto store = opened(patient(nobody));
  for (int i = 0; i < 20; ++i) {
    const Status put = put_page(*store, 1, page_of(1, 100));
    ASSERT_FALSE(put);
    EXPECT_THAT(code_of(put), testing::AnyOf(Errc::io_error, Errc::not_ready));
  }
}

TEST_F(RemoteStoreTest, ComesBackToAServerThatWasStartedAgain) {
  RedisServer server;
  const auto store = opened(patient(server.address()));
  const PageBytes page = page_of(1, 100);
  ASSERT_TRUE(put_page(*store, 1, page));
  server.kill();
  wait_until([&] { return !get_page(*store, 1, 100).has_value(); }, "the store hears of it");
  EXPECT_NE(get_page(*store, 1, 100).error().code, Errc::corrupt);
  server.restart();
  wait_until([&] { return put_page(*store, 2, page).has_value(); }, "the store comes back");
  EXPECT_EQ(get_page(*store, 2, 100).value(), page);
  EXPECT_EQ(get_page(*store, 1, 100).error().code, Errc::invalid_argument);
}

/// Puts of pages under keys that count from 0.
std::vector<PageRequest> puts_of(std::vector<PageBytes>& pages) {
  std::vector<PageRequest> puts;
  for (std::uint64_t key = 0; key < pages.size(); ++key) {
    puts.push_back({.verb = PageVerb::put,
                    .key = {.low = key},
                    .data = pages[key].data(),
                    .bytes = pages[key].size(),
                    .status = {}});
  }
  return puts;
}

TEST_F(RemoteStoreTest, EndsABatchWhoseServerIsKilledAmidIt) {
  RedisServer server;
  const auto store = opened(patient(server.address()));
  ASSERT_TRUE(put_page(*store, 1, page_of(1, 100)));
  std::vector<PageBytes> pages(500, page_of(2, 200'000));
  std::vector<PageRequest> puts = puts_of(pages);
  const auto ticket = store->submit(puts);
  ASSERT_TRUE(ticket);
  wait_until([&] { return server.client().ask({"DBSIZE"}) != "1"; }, "some pages are there");
  server.kill();
  ASSERT_TRUE(ticket->done.wait(long_enough));
  for (const PageRequest& put : puts) {
    if (put.status) continue;
    EXPECT_THAT(code_of(put.status), testing::AnyOf(Errc::io_error, Errc::not_ready));
  }
  EXPECT_FALSE(puts.back().status);
}

TEST_F(RemoteStoreTest, AServerThatIsStoppedCostsOneDeadlineAndThenNothing) {
  RedisServer server;
  RemoteStoreOptions options = patient(server.address());
  options.deadline = std::chrono::milliseconds(300);
  options.retry_first = options.retry_max = long_enough;
  const auto store = opened(options);
  wait_until([&] { return store->state().nodes_ready == 1; }, "the store has greeted");
  server.stop();
  EXPECT_EQ(code_of(put_page(*store, 1, page_of(1, 100))), Errc::not_ready);
  wait_until([&] { return store->state().failures == 1; }, "the server counts as failed");
  // Nothing is asked of it before two minutes have passed.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(get_page(*store, 1, 100).error().code, Errc::not_ready);
  }
  EXPECT_EQ(store->state().failures, 1U);
  server.go_on();
}

/// A put that was given up must not come after a later one.
TEST_F(RemoteStoreTest, AServerThatGoesOnKeepsTheLastOfTwoPuts) {
  RedisServer server;
  RemoteStoreOptions options = patient(server.address());
  options.deadline = std::chrono::milliseconds(300);
  const auto store = opened(options);
  wait_until([&] { return put_page(*store, 1, page_of(1, 100)).has_value(); }, "a put");
  server.stop();
  EXPECT_FALSE(put_page(*store, 1, page_of(2, 3'000'000)));
  server.go_on();
  const PageBytes last = page_of(3, 100);
  wait_until([&] { return put_page(*store, 1, last).has_value(); }, "a later put");
  for (int i = 0; i < 100; ++i) {
    const auto found = get_page(*store, 1, 100);
    if (found) {
      ASSERT_EQ(*found, last);
    } else {
      ASSERT_EQ(found.error().code, Errc::not_ready);
    }
  }
}

TEST_F(RemoteStoreTest, EndsWhileItsServerIsStopped) {
  RedisServer server;
  RemoteStoreOptions options = patient(server.address());
  options.deadline = std::chrono::milliseconds(300);
  auto store = opened(options);
  wait_until([&] { return store->state().nodes_ready == 1; }, "the store has greeted");
  server.stop();
  std::vector<PageBytes> pages(200, page_of(1, 100'000));
  std::vector<PageRequest> puts = puts_of(pages);
  const auto ticket = store->submit(puts, {.priority = Priority::background});
  ASSERT_TRUE(ticket);
  store.reset();
  EXPECT_TRUE(ticket->done.is_set());
  for (const PageRequest& put : puts) {
    EXPECT_THAT(code_of(put.status), testing::AnyOf(Errc::cancelled, Errc::not_ready));
  }
  EXPECT_EQ(code_of(puts.back().status), Errc::cancelled);
}

TEST_F(RemoteStoreTest, ServesManyThreadsAtOnce) {
  const RedisServer server;
  const auto store = opened(patient(server.address()));
  std::vector<std::thread> threads;
  std::latch begin(4);
  for (std::uint64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      begin.arrive_and_wait();
      for (std::uint64_t key = number * 100; key < number * 100 + 50; ++key) {
        const PageBytes page = page_of(key, 3000);
        EXPECT_TRUE(put_page(*store, key, page));
        EXPECT_EQ(get_page(*store, key, 3000).value(), page);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->usage().pages, 200U);
}

/// Answers each connection with a text, and closes it when the other side does.
class Stranger {
 public:
  explicit Stranger(std::string text) : text_(std::move(text)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket_, plain, size_), 0);
    EXPECT_EQ(::listen(socket_, 8), 0);
    EXPECT_EQ(::getsockname(socket_, plain, &size_), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  [[nodiscard]] RemoteAddress address() const { return {.host = "127.0.0.1", .port = port_}; }

 private:
  void serve() const {
    for (int peer = 0; (peer = ::accept(socket_, nullptr, nullptr)) >= 0; ::close(peer)) {
      ::send(peer, text_.data(), text_.size(), MSG_NOSIGNAL);
      char some[1024];
      while (::recv(peer, some, sizeof some, 0) > 0) continue;
    }
  }

  std::string text_;
  int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size_ = sizeof(sockaddr_in);
  std::uint16_t port_ = 0;
  std::thread thread_;
};

TEST_F(RemoteStoreTest, SurvivesServersOfOtherProtocols) {
  // An HTTP server, lengths that no memory holds, lists in lists, too many answers, and none.
  for (const std::string text :
       {"HTTP/1.1 400 Bad Request\r\n\r\n", "$9000000000000000000\r\nx", "*-5\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        ":1\r\n*0\r\n:1\r\n:1\r\n", ":1\r\n:1\r\n", "-ERR max number of clients reached\r\n", ""}) {
    const Stranger stranger(text);
    RemoteStoreOptions options = patient(stranger.address());
    options.deadline = options.connect_timeout = std::chrono::milliseconds(300);
    const auto store = opened(options);
    const Status put = put_page(*store, 1, page_of(1, 100));
    ASSERT_FALSE(put) << text;
    EXPECT_THAT(code_of(put), testing::AnyOf(Errc::io_error, Errc::not_ready)) << text;
  }
}

TEST_F(RemoteStoreTest, RefusesSeveralServersThatAreNoCluster) {
  const RedisServer first;
  const RedisServer second;
  RemoteStoreOptions options = patient(first.address());
  options.server.addresses.push_back(second.address());
  const auto store = opened(options);
  EXPECT_EQ(code_of(put_page(*store, 1, page_of(1, 100))), Errc::unsupported);
}

TEST_F(RemoteStoreTest, IsOfNoUseInAChildAndDoesItNoHarm) {
  const RedisServer server;
  auto store = opened(patient(server.address()));
  ASSERT_TRUE(put_page(*store, 1, page_of(1, 100)));
  const pid_t child = ::fork();
  if (child == 0) {
    PageRequest request{.verb = PageVerb::find, .key = {.low = 1}, .status = {}};
    const auto ticket = store->submit({&request, 1});
    const bool is_refused = !ticket && ticket.error().code == Errc::unsupported;
    store.reset();
    ::_exit(is_refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(get_page(*store, 1, 100));
}

TEST(RemoteStoreOptions, AreLookedAt) {
  const RemoteStoreOptions good = patient({.host = "127.0.0.1"});
  std::vector<RemoteStoreOptions> bad(6, good);
  bad[0].server.addresses.clear();
  bad[1].deadline = {};
  bad[2].connect_timeout = {};
  bad[3].retry_max = std::chrono::nanoseconds(1);
  bad[4].depth = 0;
  bad[5].ttl = std::chrono::nanoseconds(-1);
  for (const RemoteStoreOptions& each : bad) {
    const auto store = RemoteStore::open(each);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace terrace::offload
