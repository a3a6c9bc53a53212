// A client of one server, for what tests do behind the store's back.
#pragma once

#include <hiredis/hiredis.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace terrace::redis {

/// Each call is answered within 30 seconds, or throws.
class RedisClient {
 public:
  /// Returns nothing where nobody answers at the port.
  static std::optional<RedisClient> connect(int port, const std::string& password = {});

  /// Returns the answer's text, or its number as a text. Throws where the answer is an error.
  std::string ask(const std::vector<std::string>& words);
  /// Returns the first of a list of texts; nothing of an empty one.
  std::string first_of(const std::vector<std::string>& words);
  /// As ask(), of an answer that may be an error.
  std::string try_ask(const std::vector<std::string>& words);

 private:
  struct Free {
    void operator()(redisContext* context) const noexcept { redisFree(context); }
  };
  explicit RedisClient(std::unique_ptr<redisContext, Free> context)
      : context_(std::move(context)) {}
  struct FreeReply {
    void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
  };
  std::unique_ptr<redisReply, FreeReply> reply_to(const std::vector<std::string>& words);

  std::unique_ptr<redisContext, Free> context_;
};

}  // namespace terrace::redis
