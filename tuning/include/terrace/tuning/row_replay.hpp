// Runs recorded selections through a layer's cache of rows, by the op that keeps one in a live run.
// A run is followed to the row where each KV head has one list; where several lists of a head miss
// rows, a trace has these by position, and not in the order of the lists. A trace does not say that
// a rejected draft, which was longer than the window, made a cache begin anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/ops.hpp"
#include "terrace/policies/resident_cache.hpp"

namespace terrace::tuning {

/// Threads  one at a time
class RowReplay {
 public:
  RowReplay(std::size_t kv_heads, std::size_t block_tokens);

  /// Blocks that the cache's share is worth from now on. Where it has more, it begins anew.
  void resize(std::size_t blocks);
  void forget();

  struct Step {
    RowSlotCounts counts;
    std::uint32_t missed = 0;
  };
  /// A step that wants these rows, head after head, of a sequence of `length` tokens. Keys are
  /// position * kv_heads + head.
  Step step(std::span<const policies::WantedUnit> wanted, std::size_t length);

  [[nodiscard]] std::size_t slots() const noexcept { return most_blocks_ * block_rows(); }

 private:
  [[nodiscard]] std::size_t block_rows() const noexcept { return block_tokens_ * shape_.kv_heads; }
  void make_room(std::size_t length);
  void list_rows(std::span<const policies::WantedUnit> wanted);

  KvShape shape_;  ///< rows of no bytes: only where they are counts
  std::size_t block_tokens_;
  std::size_t most_blocks_ = 0;
  std::size_t blocks_ = 0;  ///< that the cache has
  std::vector<std::uint32_t> numbers_;
  std::vector<RowSlot> slots_;
  std::vector<std::uint32_t> calls_;
  std::vector<RowSlotCounts> counts_;
  std::vector<std::byte*> no_blocks_;  ///< no row is resident
  std::vector<std::byte*> cached_blocks_;
  std::size_t stride_ = 0;  ///< rows of a list, at most
  std::vector<std::uint32_t> ids_;
  std::vector<std::uint32_t> id_counts_;
  std::vector<std::byte*> rows_;
  std::vector<MissedRow> missed_;
};

}  // namespace terrace::tuning
