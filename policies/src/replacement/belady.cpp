// Belady's rule (IBM Systems Journal 5, 1966) for whole steps, from a recorded trace. The rule is
//   an optimum for units of one size and worth that come one at a time. For steps, whose misses are
//   admitted one after the other while their hits must stay, it is only a strong reference:
//   choose_victim: the evictable key whose next use is farthest, the higher key of equals, for of a
//          request's blocks the later ones are of no use without the first; nothing when the
//          newcomer's own next use is no nearer
//   place_in_line: by next use
// Keys lie in a heap by next use; a touch pushes a new entry, and entries that no longer say what
// their key's next use is are dropped when they come up, or when there are too many.
// State: 8 bytes a key, 16 to 80 a tracked key. Needs the future. Deterministic.
#include <algorithm>
#include <vector>

#include "rows.hpp"

namespace terrace::policies {
namespace {

class Belady final : public ReplacementPolicy {
 public:
  explicit Belady(const Foresight& foresight) : foresight_(foresight) {}

  void resize(const CacheExtent& extent) override {
    if (extent.keys > next_.size()) next_.resize(extent.keys, untracked);
  }

  void track(UnitKey key, std::uint32_t /*slots*/) override {
    note(key);
    ++size_;
  }

  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) note(key);
    if (heap_.size() > 4 * size_ + 64) drop_outdated();
  }

  void forget(UnitKey key) override {
    if (next_[key] == untracked) return;
    next_[key] = untracked;
    --size_;
  }

  [[nodiscard]] std::uint64_t place_in_line(UnitKey missed) const override {
    return comes_at(missed);
  }

  std::optional<UnitKey> choose_victim(UnitKey incoming,
                                       FunctionRef<bool(UnitKey)> evictable) override {
    kept_.clear();
    std::optional<UnitKey> victim;
    while (!heap_.empty()) {
      const Use farthest = heap_.front();
      std::ranges::pop_heap(heap_, nearer);
      heap_.pop_back();
      if (next_[farthest.key] != farthest.step) continue;
      kept_.push_back(farthest);
      if (!evictable(farthest.key)) continue;
      const bool in_vain = incoming != no_unit && comes_at(incoming) >= farthest.step;
      if (!in_vain) victim = farthest.key;
      break;
    }
    for (const Use& use : kept_) push(use);
    return victim;
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    return next_.capacity() * sizeof(std::uint64_t) +
           (heap_.capacity() + kept_.capacity()) * sizeof(Use);
  }

 private:
  struct Use {
    std::uint64_t step;
    UnitKey key;
  };
  // Below Foresight::never, so that a key without a next use is tracked all the same.
  static constexpr std::uint64_t untracked = Foresight::never;
  static constexpr std::uint64_t no_more = untracked - 1;

  static bool nearer(const Use& a, const Use& b) noexcept {
    return a.step != b.step ? a.step < b.step : a.key < b.key;
  }

  [[nodiscard]] std::uint64_t comes_at(UnitKey key) const noexcept {
    return std::min(foresight_.next_step(key), no_more);
  }

  void push(const Use& use) {
    heap_.push_back(use);
    std::ranges::push_heap(heap_, nearer);
  }

  void note(UnitKey key) {
    const std::uint64_t step = comes_at(key);
    if (next_[key] == step) return;
    next_[key] = step;
    push({step, key});
  }

  void drop_outdated() {
    std::erase_if(heap_, [&](const Use& use) { return next_[use.key] != use.step; });
    std::ranges::make_heap(heap_, nearer);
  }

  const Foresight& foresight_;
  std::vector<std::uint64_t> next_;
  std::vector<Use> heap_;
  std::vector<Use> kept_;
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_belady(const ReplacementOptions& options) {
  return std::make_unique<Belady>(*options.foresight);
}

}  // namespace terrace::policies
