// Answers of a server are tested without one.
#include "remote/redis_reply.hpp"

#include <gmock/gmock.h>

namespace terrace::offload {
namespace {

RedisReply reply_of(std::string_view text) {
  redisReader* const reader = redisReaderCreate();
  redisReaderFeed(reader, text.data(), text.size());
  void* reply = nullptr;
  redisReaderGetReply(reader, &reply);
  redisReaderFree(reader);
  return RedisReply(static_cast<redisReply*>(reply));
}

TEST(RedisReply, FollowsMovedAndAsk) {
  const auto moved = redirect_of("MOVED 3999 127.0.0.1:6381", "me");
  ASSERT_TRUE(moved);
  EXPECT_EQ(*moved, (Redirect{.slot = 3999, .node = {.host = "127.0.0.1", .port = 6381}}));
  const auto ask = redirect_of("ASK 1 ::1:7000", "me");
  ASSERT_TRUE(ask);
  EXPECT_TRUE(ask->asks_once);
  EXPECT_EQ(ask->node.host, "::1");
  EXPECT_EQ(redirect_of("MOVED 1 :7000", "me")->node.host, "me");
}

TEST(RedisReply, FollowsNothingElse) {
  for (const std::string_view text :
       {"", "MOVED", "MOVED x 127.0.0.1:1", "MOVED 16384 127.0.0.1:1", "MOVED 1 127.0.0.1",
        "MOVED 1 127.0.0.1:0", "MOVED 1 127.0.0.1:70000", "ERR MOVED 1 127.0.0.1:1"}) {
    EXPECT_FALSE(redirect_of(text, "me")) << text;
  }
}

TEST(RedisReply, SaysWhatACallerCanDo) {
  EXPECT_EQ(refusal("OOM command not allowed").code, Errc::out_of_memory);
  EXPECT_EQ(refusal("WRONGTYPE Operation").code, Errc::corrupt);
  EXPECT_EQ(refusal("LOADING Redis is loading").code, Errc::not_ready);
  EXPECT_EQ(refusal("CLUSTERDOWN Hash slot not served").code, Errc::not_ready);
  EXPECT_EQ(refusal("NOPERM this user").code, Errc::io_error);
  EXPECT_TRUE(says_map_is_old("CLUSTERDOWN"));
  EXPECT_TRUE(says_map_is_old("READONLY You can't write"));
  EXPECT_FALSE(says_map_is_old("OOM"));
}

TEST(RedisReply, ReadsAMapOfSlots) {
  const auto reply = reply_of(
      "*2\r\n"
      "*3\r\n:0\r\n:99\r\n*3\r\n$8\r\n10.0.0.1\r\n:7000\r\n$2\r\nid\r\n"
      "*4\r\n:100\r\n:16383\r\n*2\r\n$-1\r\n:7001\r\n*2\r\n$8\r\n10.0.0.9\r\n:7002\r\n");
  const auto slots = slots_of(*reply, "me");
  ASSERT_TRUE(slots) << slots.error().message();
  EXPECT_THAT(*slots,
              testing::ElementsAre(
                  SlotRange{.first = 0, .last = 99, .node = {.host = "10.0.0.1", .port = 7000}},
                  SlotRange{.first = 100, .last = 16'383, .node = {.host = "me", .port = 7001}}));
}

TEST(RedisReply, RefusesAMapThatIsNone) {
  for (const std::string_view text : {":1\r\n", "*1\r\n:1\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n",
                                      "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
                                      "*1\r\n*3\r\n:-1\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n",
                                      "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\na\r\n:65536\r\n",
                                      "*1\r\n*3\r\n:0\r\n:5\r\n*1\r\n$1\r\na\r\n"}) {
    EXPECT_FALSE(slots_of(*reply_of(text), "me")) << text;
  }
  EXPECT_TRUE(slots_of(*reply_of("*0\r\n"), "me")->empty());
}

TEST(RemoteServer, ReadsUrls) {
  const auto plain = RemoteServer::parse("redis://cache");
  ASSERT_TRUE(plain);
  EXPECT_THAT(plain->addresses, testing::ElementsAre(RemoteAddress{.host = "cache", .port = 6379}));
  EXPECT_EQ(plain->password, "");
  const auto full = RemoteServer::parse("redis://terrace:s%40c:r@t@10.0.0.1:7000,[::1]:7001,b");
  ASSERT_TRUE(full) << full.error().message();
  EXPECT_EQ(full->user, "terrace");
  EXPECT_EQ(full->password, "s@c:r@t");
  EXPECT_THAT(full->addresses, testing::ElementsAre(RemoteAddress{.host = "10.0.0.1", .port = 7000},
                                                    RemoteAddress{.host = "::1", .port = 7001},
                                                    RemoteAddress{.host = "b", .port = 6379}));
  EXPECT_EQ(full->addresses[1].text(), "[::1]:7001");
}

TEST(RemoteServer, RefusesOtherTextsAndNeverShowsThePassword) {
  for (const std::string_view url :
       {"", "redis://", "rediss://:secret@a", "http://u:secret@a", "redis://:secret@",
        "redis://secret@a", "redis://:@a", "redis://:secret%4@a", "redis://:secret%zz@a",
        "redis://:secret@a:0", "redis://:secret@a:65536", "redis://:secret@a:x",
        "redis://:secret@a,,b", "redis://a:secret", "redis://:secret@[::1",
        "redis://:secret@a:1/2"}) {
    const auto server = RemoteServer::parse(url);
    ASSERT_FALSE(server) << url;
    EXPECT_EQ(server.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(server.error().message()), testing::Not(testing::HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace terrace::offload
