#include "terrace/runtime/step_room.hpp"

#include <algorithm>
#include <numeric>

#include "terrace/core/bytes.hpp"
#include "terrace/core/ops.hpp"

namespace terrace {
namespace {

constexpr std::size_t state_tokens_min = 64;
constexpr std::size_t state_tokens_max = 2048;

}  // namespace

std::size_t StepRoom::state_bytes(const KvShape& shape) const noexcept {
  return tile_state_floats(shape, state_tokens) * sizeof(float);
}

std::size_t StepRoom::tile_bytes(const KvShape& shape) const noexcept {
  return tile_tokens * shape.token_bytes();
}

std::size_t StepRoom::bytes(const KvShape& shape) const noexcept {
  return state_bytes(shape) + 2 * tile_bytes(shape);
}

std::size_t least_tile_tokens(std::size_t block_tokens) noexcept {
  return std::lcm(tile_split, block_tokens);
}

std::size_t most_tile_tokens(std::size_t block_tokens) noexcept {
  // A copy of so many rows takes longer than to wake the thread that makes it.
  constexpr std::size_t about = 2048;
  const std::size_t least = least_tile_tokens(block_tokens);
  return std::max(least, about / least * least);
}

StepRoom least_step_room(const StepRoomQuery& query) noexcept {
  return {.state_tokens = std::min(query.tokens, state_tokens_min),
          .tile_tokens = query.rows == 0 ? 0 : least_tile_tokens(query.block_tokens)};
}

StepRoom step_room(const StepRoomQuery& query) noexcept {
  const StepRoom least = least_step_room(query);
  const std::size_t share = query.device_memory / 16;
  StepRoom room;
  const std::size_t state = share / (tile_state_floats(query.shape, 1) * sizeof(float));
  room.state_tokens = std::min({query.tokens, state_tokens_max, state});
  room.state_tokens = std::max(room.state_tokens, least.state_tokens);
  if (query.rows == 0) return room;
  const std::size_t fitting = share / 2 / query.shape.token_bytes();
  const std::size_t useful = align_up(query.rows, least.tile_tokens);
  room.tile_tokens = std::min({most_tile_tokens(query.block_tokens), fitting, useful});
  room.tile_tokens =
      std::max(least.tile_tokens, room.tile_tokens / least.tile_tokens * least.tile_tokens);
  return room;
}

}  // namespace terrace
