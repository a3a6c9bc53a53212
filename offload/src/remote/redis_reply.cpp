#include "redis_reply.hpp"

#include <charconv>

namespace terrace::offload {
namespace {

template <typename Number>
std::optional<Number> number_in(std::string_view text) noexcept {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc{} && end == text.data() + text.size();
  return is_number ? std::optional(number) : std::nullopt;
}

/// Takes the next word off a text.
std::string_view take_word(std::string_view& text) noexcept {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::optional<SlotRange> range_of(const redisReply& reply, std::string_view host) {
  if (reply.type != REDIS_REPLY_ARRAY || reply.elements < 3) return std::nullopt;
  const redisReply& first = *reply.element[0];
  const redisReply& last = *reply.element[1];
  const redisReply& node = *reply.element[2];
  if (first.type != REDIS_REPLY_INTEGER || last.type != REDIS_REPLY_INTEGER) return std::nullopt;
  if (node.type != REDIS_REPLY_ARRAY || node.elements < 2) return std::nullopt;
  const std::string_view named = text_of(*node.element[0]);
  const redisReply& port = *node.element[1];
  const auto is_slot = [](long long slot) { return slot >= 0 && slot < int{slot_count}; };
  if (!is_slot(first.integer) || !is_slot(last.integer)) return std::nullopt;
  if (port.type != REDIS_REPLY_INTEGER || port.integer < 1 || port.integer > 65'535) {
    return std::nullopt;
  }
  return SlotRange{.first = static_cast<std::uint16_t>(first.integer),
                   .last = static_cast<std::uint16_t>(last.integer),
                   .node = {.host = std::string(named.empty() ? host : named),
                            .port = static_cast<std::uint16_t>(port.integer)}};
}

}  // namespace

std::string_view text_of(const redisReply& reply) noexcept {
  const bool is_text = reply.type == REDIS_REPLY_STRING || reply.type == REDIS_REPLY_STATUS ||
                       reply.type == REDIS_REPLY_ERROR;
  return is_text ? std::string_view(reply.str, static_cast<std::size_t>(reply.len))
                 : std::string_view{};
}

std::optional<Redirect> redirect_of(std::string_view error, std::string_view host) {
  const std::string_view verb = take_word(error);
  if (verb != "MOVED" && verb != "ASK") return std::nullopt;
  const auto slot = number_in<std::uint16_t>(take_word(error));
  const std::string_view address = take_word(error);
  const std::size_t colon = address.rfind(':');  // a host of IPv6 has some of its own
  if (!slot || *slot >= slot_count || colon == std::string_view::npos) return std::nullopt;
  const auto port = number_in<std::uint16_t>(address.substr(colon + 1));
  if (!port || *port == 0) return std::nullopt;
  const std::string_view named = address.substr(0, colon);
  return Redirect{.slot = *slot,
                  .node = {.host = std::string(named.empty() ? host : named), .port = *port},
                  .asks_once = verb == "ASK"};
}

Error refusal(std::string_view error) {
  std::string_view rest = error;
  const std::string_view kind = take_word(rest);
  if (kind == "OOM") {
    return make_error(Errc::out_of_memory, "store remote: the server has no room: {}", error);
  }
  if (kind == "WRONGTYPE") {
    return make_error(Errc::corrupt, "store remote: another program uses the key: {}", error);
  }
  if (kind == "LOADING" || kind == "CLUSTERDOWN" || kind == "TRYAGAIN" || kind == "BUSY") {
    return make_error(Errc::not_ready, "store remote: the server is not ready: {}", error);
  }
  return make_error(Errc::io_error, "store remote: the server refuses: {}", error);
}

bool says_map_is_old(std::string_view error) noexcept {
  return error.starts_with("CLUSTERDOWN") || error.starts_with("READONLY");
}

Result<std::vector<SlotRange>> slots_of(const redisReply& reply, std::string_view host) {
  std::vector<SlotRange> ranges;
  const bool is_list = reply.type == REDIS_REPLY_ARRAY;
  for (std::size_t i = 0; is_list && i < reply.elements; ++i) {
    auto range = range_of(*reply.element[i], host);
    if (range) ranges.push_back(*std::move(range));
  }
  if (!is_list || ranges.size() != reply.elements) {
    return fail(Errc::io_error, "store remote: {} answers CLUSTER SLOTS with something else", host);
  }
  return ranges;
}

}  // namespace terrace::offload
