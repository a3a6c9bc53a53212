// Keeps the keys that the last R steps wanted and no others: ClusterKV's cache (arXiv 2412.03213),
// R = 1 there. One list by the step that last wanted a key:
//   touch, track: append at the newest end, stamped with the step
//   expire: the oldest, if R steps have not wanted it
//   choose_victim: the first evictable from the oldest
// State: 16 bytes a key. Needs hits only. Deterministic.
#include "key_lists.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

class LastSteps final : public ReplacementPolicy {
 public:
  explicit LastSteps(std::size_t kept) : kept_(kept) {}

  void resize(const CacheExtent& extent) override {
    uses_.resize(extent.keys);
    if (extent.keys > wanted_.size()) wanted_.resize(extent.keys, untracked);
  }

  void track(UnitKey key, std::uint32_t /*slots*/) override {
    uses_.push_newest(TheList::all, key);
    wanted_[key] = step_;
    ++size_;
  }

  void touch(std::span<const UnitKey> hits) override {
    ++step_;
    for (const UnitKey key : hits) {
      uses_.remove(key);
      uses_.push_newest(TheList::all, key);
      wanted_[key] = step_;
    }
  }

  void forget(UnitKey key) override {
    if (wanted_[key] == untracked) return;
    uses_.remove(key);
    wanted_[key] = untracked;
    --size_;
  }

  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/,
                                       FunctionRef<bool(UnitKey)> evictable) override {
    return uses_.oldest_evictable(TheList::all, evictable);
  }

  std::optional<UnitKey> expire() override {
    const UnitKey key = uses_.oldest(TheList::all);
    if (key == no_unit || step_ - wanted_[key] < kept_) return std::nullopt;
    forget(key);
    return key;
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    return uses_.bytes() + wanted_.capacity() * sizeof(std::uint64_t);
  }

 private:
  static constexpr std::uint64_t untracked = ~std::uint64_t{0};

  std::size_t kept_;
  std::uint64_t step_ = 0;
  KeyList uses_;
  std::vector<std::uint64_t> wanted_;  ///< the last step that wanted a key
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_last_steps(const ReplacementOptions& options) {
  return std::make_unique<LastSteps>(options.last_steps);
}

}  // namespace terrace::policies
