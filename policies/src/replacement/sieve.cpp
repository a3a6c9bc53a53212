// SIEVE (Zhang et al., NSDI 2024). One queue from oldest to newest arrival, never reordered, and a
// hand that goes from old to new:
//   track: append at the newest end, not visited         touch: mark visited
//   choose_victim: the hand passes visited keys and unmarks them, and stays at the first that is
//          not visited; from the newest end it starts again at the oldest
//   evict: the hand moves past it
// Keys that the hand has unmarked on its way stay so, even if the key it found is kept in the end.
// State: 9 bytes a key. Needs hits only. Deterministic.
#include "key_lists.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

class Sieve final : public ReplacementPolicy {
 public:
  void resize(const CacheExtent& extent) override {
    queue_.resize(extent.keys);
    if (extent.keys > state_.size()) state_.resize(extent.keys, State::untracked);
  }

  void track(UnitKey key, std::uint32_t /*slots*/) override {
    queue_.push_newest(TheList::all, key);
    state_[key] = State::arrived;
    ++size_;
  }

  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) state_[key] = State::visited;
  }

  void forget(UnitKey key) override {
    if (state_[key] == State::untracked) return;
    if (hand_ == key) hand_ = queue_.newer(key);
    queue_.remove(key);
    state_[key] = State::untracked;
    --size_;
  }

  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/,
                                       FunctionRef<bool(UnitKey)> evictable) override {
    // The first round may only unmark; the second finds what there is.
    for (std::size_t passed = 0; passed < 2 * size_; ++passed) {
      if (hand_ == no_unit) hand_ = queue_.oldest(TheList::all);
      if (evictable(hand_)) {
        if (state_[hand_] == State::arrived) return hand_;
        state_[hand_] = State::arrived;
      }
      hand_ = queue_.newer(hand_);
    }
    return std::nullopt;
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    return queue_.bytes() + state_.capacity();
  }

 private:
  enum class State : std::uint8_t { untracked, arrived, visited };

  KeyList queue_;
  std::vector<State> state_;
  UnitKey hand_ = no_unit;  ///< where the next search begins; no_unit: at the oldest
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_sieve(const ReplacementOptions& /*options*/) {
  return std::make_unique<Sieve>();
}

}  // namespace terrace::policies
