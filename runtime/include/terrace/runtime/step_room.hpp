// Device memory that the members of a step share: the state of queries that attend exactly, and
// two tiles of rows that pass. More of it reads rows from the host less often, and takes from
// caches; so that both can be planned, the sizes follow from the limit of device memory alone.
#pragma once

#include <cstddef>

#include "terrace/core/shape.hpp"

namespace terrace {

/// Device memory, and the largest piece of a prompt, or draft, among a step's members.
struct StepRoomQuery {
  KvShape shape;
  std::size_t block_tokens = 0;
  std::size_t device_memory = 0;  ///< limit of the tier in bytes; SIZE_MAX = none
  std::size_t tokens = 0;         ///< query tokens that attend exactly
  std::size_t rows = 0;           ///< of a layer that pass by tiles; 0 = all lie in device memory
};

struct StepRoom {
  std::size_t state_tokens = 0;  ///< query tokens that attend at once
  std::size_t tile_tokens = 0;   ///< rows of a tile; 0 = there are no tiles

  [[nodiscard]] std::size_t state_bytes(const KvShape& shape) const noexcept;
  [[nodiscard]] std::size_t tile_bytes(const KvShape& shape) const noexcept;  ///< of one
  [[nodiscard]] std::size_t bytes(const KvShape& shape) const noexcept;
};

/// Returns the sizes where memory is free. State and tiles take an eighth of device memory at most,
/// but where the least sizes are more than that.
[[nodiscard]] StepRoom step_room(const StepRoomQuery& query) noexcept;

/// Returns the least sizes with which a step can be made.
[[nodiscard]] StepRoom least_step_room(const StepRoomQuery& query) noexcept;

/// Returns the least and the largest length of a tile: multiples of a block's and of tile_split.
[[nodiscard]] std::size_t least_tile_tokens(std::size_t block_tokens) noexcept;
[[nodiscard]] std::size_t most_tile_tokens(std::size_t block_tokens) noexcept;

}  // namespace terrace
