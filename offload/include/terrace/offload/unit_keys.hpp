// Dense keys for the blocks of many sequences: what replacement policies index by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "terrace/core/function_ref.hpp"
#include "terrace/core/ids.hpp"
#include "terrace/core/replacement.hpp"
#include "terrace/core/result.hpp"

namespace terrace::offload {

/// Gives (sequence, block) pairs keys below `capacity`, and uses keys again once they are released.
/// Deterministic. Threads: one thread at a time.
class UnitKeys {
 public:
  explicit UnitKeys(std::size_t capacity);

  /// Returns the pair's key, a new one the first time.
  /// Errors: out_of_memory when all keys are taken.
  [[nodiscard]] Result<UnitKey> acquire(SequenceId sequence, BlockId block);

  [[nodiscard]] std::optional<UnitKey> find(SequenceId sequence, BlockId block) const;

  /// Releases the keys of a sequence's blocks from `first` on, telling each to `released` before
  /// it can be given again.
  void release(SequenceId sequence, BlockId first, FunctionRef<void(UnitKey)> released);

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t in_use() const noexcept { return capacity_ - free_.size(); }

 private:
  static constexpr UnitKey none = ~UnitKey{0};

  std::size_t capacity_;
  std::vector<UnitKey> free_;
  std::unordered_map<SequenceId, std::vector<UnitKey>> keys_;  ///< by block
};

}  // namespace terrace::offload
