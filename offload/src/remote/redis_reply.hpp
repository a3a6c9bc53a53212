// Answers of a server, and what its errors mean.
#pragma once

#include <hiredis/hiredis.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "slot_map.hpp"

namespace terrace::offload {

struct FreeReply {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};
using RedisReply = std::unique_ptr<redisReply, FreeReply>;

/// Returns the text of a string, status or error; empty for others.
[[nodiscard]] std::string_view text_of(const redisReply& reply) noexcept;
[[nodiscard]] inline bool is_error(const redisReply& reply) noexcept {
  return reply.type == REDIS_REPLY_ERROR;
}

/// The answer of a node of a cluster that another one has the slot.
struct Redirect {
  std::uint16_t slot = 0;
  RemoteAddress node;
  bool asks_once = false;  ///< ASK: this request alone; MOVED: all of the slot from now on
  bool operator==(const Redirect&) const = default;
};

/// Returns where an error sends the request; nothing for other errors. A node that names no host
/// means its own.
[[nodiscard]] std::optional<Redirect> redirect_of(std::string_view error, std::string_view host);

/// Returns the error of a request that a server refused.
[[nodiscard]] Error refusal(std::string_view error);

/// Whether a cluster says that it has no node for the slot, or a server that it is a replica now:
/// the map of slots is old.
[[nodiscard]] bool says_map_is_old(std::string_view error) noexcept;

/// Returns what CLUSTER SLOTS answered. Errors: io_error: another answer.
[[nodiscard]] Result<std::vector<SlotRange>> slots_of(const redisReply& reply,
                                                      std::string_view host);

}  // namespace terrace::offload
