#include "page_commands.hpp"

#include <algorithm>

#include "page_frame.hpp"
#include "storage/store_errors.hpp"

namespace terrace::offload {
namespace {

constexpr std::string_view remote = "remote";

RedisCommand range_command(const std::string& name, const PagePiece& piece) {
  return {"GETRANGE", name, std::to_string(piece.begin), std::to_string(piece.end() - 1)};
}

RedisCommand put_command(const PageRequest& request, const std::string& name, Duration ttl) {
  RedisCommand command{"SET", name, framed(request.key, {request.data, request.bytes})};
  if (ttl == Duration{}) return command;
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(ttl).count();
  command.emplace_back("PX");
  command.push_back(std::to_string(std::max<std::int64_t>(time, 1)));
  return command;
}

std::size_t count_of(const redisReply& reply) noexcept {
  const bool is_count = reply.type == REDIS_REPLY_INTEGER && reply.integer > 0;
  return is_count ? static_cast<std::size_t>(reply.integer) : 0;
}

Status read_part(const PageRequest& request, std::string_view head, std::string_view parts) {
  if (head.empty()) return unknown_page(remote, request.key);
  TERRACE_ASSIGN(const std::size_t bytes, page_bytes(request.key, head));
  TERRACE_TRY(check_range(remote, request, bytes));
  const PagePiece some{request.offset, request.bytes};
  if (copy_checked(request.key, bytes, some, parts, request.data)) return {};
  return corrupt_part(remote, request);
}

Status read_page(const PageRequest& request, const redisReply& reply) {
  if (reply.type == REDIS_REPLY_NIL) return unknown_page(remote, request.key);
  const std::string_view value = text_of(reply);
  TERRACE_ASSIGN(const std::size_t bytes, page_bytes(request.key, value));
  TERRACE_TRY(check_range(remote, request, bytes));
  const std::string_view parts = value.substr(frame_head_bytes);
  if (copy_checked(request.key, bytes, {0, bytes}, parts, request.data)) return {};
  return corrupt_page(remote, request.key);
}

Status read_size(PageRequest& request, std::string_view head, std::size_t value_bytes) {
  if (head.empty()) return unknown_page(remote, request.key);
  TERRACE_ASSIGN(const std::size_t bytes, page_bytes(request.key, head));
  if (framed_bytes(bytes) != value_bytes) return corrupt_page(remote, request.key);
  request.bytes = bytes;
  return {};
}

}  // namespace

std::string value_name(std::string_view prefix, PageKey key) {
  return fmt::format("{}{:016x}{:016x}", prefix, key.high, key.low);
}

std::vector<RedisCommand> commands_of(const PageRequest& request, const std::string& name,
                                      Duration ttl) {
  const PagePiece head{0, frame_head_bytes};
  switch (request.verb) {
    case PageVerb::get:
      return {{"GET", name}};
    case PageVerb::get_part:
      return {range_command(name, head),
              range_command(name, framed_parts({request.offset, request.bytes}))};
    case PageVerb::put:
      return {{"STRLEN", name}, put_command(request, name, ttl)};
    case PageVerb::erase:
      return {{"STRLEN", name}, {"UNLINK", name}};
    case PageVerb::find:
      return {range_command(name, head), {"STRLEN", name}};
  }
  return {};
}

PageOutcome read_answers(PageRequest& request, std::span<const RedisReply> answers) {
  const redisReply& first = *answers.front();
  const redisReply& last = *answers.back();
  switch (request.verb) {
    case PageVerb::get:
      return {.status = read_page(request, first)};
    case PageVerb::get_part:
      return {.status = read_part(request, text_of(first), text_of(last))};
    case PageVerb::put:
      return {.bytes_before = unframed_bytes(count_of(first))};
    case PageVerb::erase:
      if (count_of(last) == 0) return {.status = unknown_page(remote, request.key)};
      return {.bytes_before = unframed_bytes(count_of(first))};
    case PageVerb::find:
      return {.status = read_size(request, text_of(first), count_of(last))};
  }
  return {};
}

}  // namespace terrace::offload
