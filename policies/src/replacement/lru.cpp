// Least recently used. One list from oldest to newest use:
//   track: append at the newest end        touch: move each to the newest end, in the order given
//   choose_victim: the first evictable from the oldest end
// State: 8 bytes a key. Needs hits only. Deterministic.
#include "key_lists.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

class Lru final : public ReplacementPolicy {
 public:
  void resize(const CacheExtent& extent) override {
    uses_.resize(extent.keys);
    if (extent.keys > tracked_.size()) tracked_.resize(extent.keys);
  }

  void track(UnitKey key, std::uint32_t /*slots*/) override {
    uses_.push_newest(TheList::all, key);
    tracked_[key] = true;
    ++size_;
  }

  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) {
      uses_.remove(key);
      uses_.push_newest(TheList::all, key);
    }
  }

  void forget(UnitKey key) override {
    if (!tracked_[key]) return;
    uses_.remove(key);
    tracked_[key] = false;
    --size_;
  }

  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/,
                                       FunctionRef<bool(UnitKey)> evictable) override {
    return uses_.oldest_evictable(TheList::all, evictable);
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    return uses_.bytes() + tracked_.capacity() / 8;
  }

 private:
  KeyList uses_;
  std::vector<bool> tracked_;
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_lru(const ReplacementOptions& /*options*/) {
  return std::make_unique<Lru>();
}

}  // namespace terrace::policies
