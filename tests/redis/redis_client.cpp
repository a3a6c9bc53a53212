#include "redis/redis_client.hpp"

#include <stdexcept>

namespace terrace::redis {

std::optional<RedisClient> RedisClient::connect(int port, const std::string& password) {
  const timeval patience{.tv_sec = 30, .tv_usec = 0};
  std::unique_ptr<redisContext, Free> context(redisConnectWithTimeout("127.0.0.1", port, patience));
  if (context == nullptr || context->err != 0) return std::nullopt;
  redisSetTimeout(context.get(), patience);
  RedisClient client(std::move(context));
  if (!password.empty()) client.ask({"AUTH", password});
  return client;
}

std::unique_ptr<redisReply, RedisClient::FreeReply> RedisClient::reply_to(
    const std::vector<std::string>& words) {
  std::vector<const char*> texts;
  std::vector<std::size_t> sizes;
  for (const std::string& word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  std::unique_ptr<redisReply, FreeReply> reply(static_cast<redisReply*>(redisCommandArgv(
      context_.get(), static_cast<int>(texts.size()), texts.data(), sizes.data())));
  if (reply == nullptr) throw std::runtime_error(words.front() + ": " + context_->errstr);
  return reply;
}

std::string RedisClient::try_ask(const std::vector<std::string>& words) {
  const auto reply = reply_to(words);
  if (reply->type == REDIS_REPLY_INTEGER) return std::to_string(reply->integer);
  return reply->str == nullptr ? std::string{}
                               : std::string(reply->str, static_cast<std::size_t>(reply->len));
}

std::string RedisClient::ask(const std::vector<std::string>& words) {
  const auto reply = reply_to(words);
  if (reply->type == REDIS_REPLY_INTEGER) return std::to_string(reply->integer);
  if (reply->str == nullptr) return {};
  std::string text(reply->str, static_cast<std::size_t>(reply->len));
  if (reply->type == REDIS_REPLY_ERROR) throw std::runtime_error(words.front() + ": " + text);
  return text;
}

std::string RedisClient::first_of(const std::vector<std::string>& words) {
  const auto reply = reply_to(words);
  if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) return {};
  const redisReply& first = *reply->element[0];
  return {first.str, static_cast<std::size_t>(first.len)};
}

}  // namespace terrace::redis
