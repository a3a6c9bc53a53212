#include "terrace/offload/unit_keys.hpp"

namespace terrace::offload {

UnitKeys::UnitKeys(std::size_t capacity) : capacity_(capacity), free_(capacity) {
  // Low keys first: the last one is taken first.
  for (std::size_t i = 0; i < capacity; ++i) free_[i] = static_cast<UnitKey>(capacity - 1 - i);
}

Result<UnitKey> UnitKeys::acquire(SequenceId sequence, BlockId block) {
  std::vector<UnitKey>& keys = keys_[sequence];
  const std::size_t at = index(block);
  if (at < keys.size() && keys[at] != none) return keys[at];
  if (free_.empty()) {
    return fail(Errc::out_of_memory, "all {} cache keys are taken; close a sequence", capacity_);
  }
  if (at >= keys.size()) keys.resize(at + 1, none);
  keys[at] = free_.back();
  free_.pop_back();
  return keys[at];
}

std::optional<UnitKey> UnitKeys::find(SequenceId sequence, BlockId block) const {
  const auto found = keys_.find(sequence);
  if (found == keys_.end() || index(block) >= found->second.size()) return std::nullopt;
  const UnitKey key = found->second[index(block)];
  return key == none ? std::nullopt : std::optional(key);
}

void UnitKeys::release(SequenceId sequence, BlockId first, FunctionRef<void(UnitKey)> released) {
  const auto found = keys_.find(sequence);
  if (found == keys_.end()) return;
  std::vector<UnitKey>& keys = found->second;
  while (keys.size() > index(first)) {
    if (const UnitKey key = keys.back(); key != none) {
      released(key);
      free_.push_back(key);
    }
    keys.pop_back();
  }
  if (keys.empty()) keys_.erase(found);
}

}  // namespace terrace::offload
