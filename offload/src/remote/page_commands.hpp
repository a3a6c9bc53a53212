// The commands that carry out a request, and the meaning of their answers.
#pragma once

#include <string>
#include <vector>

#include "redis_reply.hpp"

namespace terrace::offload {

/// Words of one command.
using RedisCommand = std::vector<std::string>;

/// Returns the name of a page's value.
[[nodiscard]] std::string value_name(std::string_view prefix, PageKey key);

/// Returns the commands that carry out a request, one or two; both are of one key.
/// `ttl`: 0 = for ever.
[[nodiscard]] std::vector<RedisCommand> commands_of(const PageRequest& request,
                                                    const std::string& name, Duration ttl);

/// How a request ended, and what it changed of the pages that are there.
struct PageOutcome {
  Status status = {};
  std::size_t bytes_before = 0;  ///< put, erase: of the page that was there; 0 = none
};

/// Reads the answers to commands_of() into the request. None of them is an error, but the first of
/// a put or an erase may be one.
[[nodiscard]] PageOutcome read_answers(PageRequest& request, std::span<const RedisReply> answers);

}  // namespace terrace::offload
