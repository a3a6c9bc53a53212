#include "policies/replacement_models.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace terrace::policies {
namespace {

using Keys = std::vector<UnitKey>;  ///< oldest first

bool has(const Keys& keys, UnitKey key) { return std::ranges::count(keys, key) != 0; }
bool take(Keys& keys, UnitKey key) { return std::erase(keys, key) != 0; }

std::optional<UnitKey> first_of(const Keys& keys, const ReplacementModel::Allowed& allowed) {
  const auto found = std::ranges::find_if(keys, allowed);
  if (found == keys.end()) return std::nullopt;
  return *found;
}

/// Knows how many slots units take.
class SizedModel : public ReplacementModel {
 public:
  void track(UnitKey key, std::uint32_t slots) final {
    slots_[key] = slots;
    take_in(key);
  }

 protected:
  virtual void take_in(UnitKey key) = 0;
  [[nodiscard]] std::size_t slots_of(const Keys& keys) const {
    std::size_t sum = 0;
    for (const UnitKey key : keys) sum += slots_.at(key);
    return sum;
  }

 private:
  std::map<UnitKey, std::uint32_t> slots_;
};

class Lru final : public ReplacementModel {
 public:
  void track(UnitKey key, std::uint32_t /*slots*/) override { keys_.push_back(key); }
  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) {
      take(keys_, key);
      keys_.push_back(key);
    }
  }
  void forget(UnitKey key) override { take(keys_, key); }
  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/, const Allowed& allowed) override {
    return first_of(keys_, allowed);
  }

 private:
  Keys keys_;
};

/// Ranks as the policy defines them, without its lists: every verb looks at all keys.
class Lrfu final : public ReplacementModel {
 public:
  explicit Lrfu(std::size_t half_life) : half_life_(half_life) {}
  void track(UnitKey key, std::uint32_t /*slots*/) override {
    rank_[key] = std::max(rank_[key], now());
    arrived_[key] = ++arrivals_;
  }
  void touch(std::span<const UnitKey> hits) override {
    ++step_;
    miss(hits);
    for (const UnitKey key : hits) arrived_[key] = ++arrivals_;
  }
  void miss(std::span<const UnitKey> wanted) override {
    for (const UnitKey key : wanted) {
      const auto [less, more] = std::minmax({rank_[key], now()});
      const double ratio = std::exp2((static_cast<double>(less) - static_cast<double>(more)) / 256);
      rank_[key] = more + static_cast<std::uint64_t>(std::lround(256 * std::log2(1 + ratio)));
    }
  }
  void forget(UnitKey key) override {
    evict(key);
    rank_.erase(key);
  }
  void evict(UnitKey key) override { arrived_.erase(key); }
  std::optional<UnitKey> choose_victim(UnitKey incoming, const Allowed& allowed) override {
    std::optional<UnitKey> least;
    const auto order = [&](UnitKey key) { return std::pair(rank_[key] / 16, arrived_[key]); };
    for (const auto& [key, arrival] : arrived_) {
      if (allowed(key) && (!least || order(key) < order(*least))) least = key;
    }
    if (least && incoming != no_unit && std::max(rank_[incoming], now()) + 256 < rank_[*least])
      return std::nullopt;
    return least;
  }

 private:
  [[nodiscard]] std::uint64_t now() const { return 2560 + step_ * 256 / half_life_; }

  std::size_t half_life_;
  std::uint64_t step_ = 0;
  std::uint64_t arrivals_ = 0;
  std::map<UnitKey, std::uint64_t> rank_;
  std::map<UnitKey, std::uint64_t> arrived_;  ///< of what is tracked
};

class LastSteps final : public ReplacementModel {
 public:
  explicit LastSteps(std::size_t kept) : kept_(kept) {}
  void track(UnitKey key, std::uint32_t /*slots*/) override {
    keys_.push_back(key);
    wanted_[key] = step_;
  }
  void touch(std::span<const UnitKey> hits) override {
    ++step_;
    for (const UnitKey key : hits) {
      take(keys_, key);
      track(key, 0);
    }
  }
  void forget(UnitKey key) override { take(keys_, key); }
  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/, const Allowed& allowed) override {
    return first_of(keys_, allowed);
  }
  std::optional<UnitKey> expire() override {
    const auto old = first_of(keys_, [&](UnitKey key) { return step_ - wanted_[key] >= kept_; });
    if (old) take(keys_, *old);
    return old;
  }

 private:
  std::size_t kept_;
  std::uint64_t step_ = 0;
  Keys keys_;
  std::map<UnitKey, std::uint64_t> wanted_;
};

class Lfu final : public ReplacementModel {
 public:
  explicit Lfu(std::size_t half_life) : half_life_(half_life) {}
  void track(UnitKey key, std::uint32_t /*slots*/) override {
    keys_.push_back(key);
    uses_[key] = 1;
  }
  void touch(std::span<const UnitKey> hits) override {
    ++step_;
    if (half_life_ != 0 && step_ % half_life_ == 0) {
      // Keys with counts that become equal stay in the order of their old counts.
      std::ranges::stable_sort(keys_, {}, [&](UnitKey key) { return uses_[key]; });
      for (auto& [key, uses] : uses_) uses = std::max<std::uint64_t>(1, uses / 2);
    }
    for (const UnitKey key : hits) {
      take(keys_, key);
      keys_.push_back(key);
      ++uses_[key];
    }
  }
  void forget(UnitKey key) override { take(keys_, key); }
  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/, const Allowed& allowed) override {
    std::optional<UnitKey> best;
    for (const UnitKey key : keys_) {
      if (allowed(key) && (!best || uses_[key] < uses_[*best])) best = key;
    }
    return best;
  }

 private:
  std::size_t half_life_;
  std::uint64_t step_ = 0;
  Keys keys_;  ///< by last use
  std::map<UnitKey, std::uint64_t> uses_;
};

class Sieve final : public ReplacementModel {
 public:
  void track(UnitKey key, std::uint32_t /*slots*/) override {
    keys_.push_back(key);
    visited_[key] = false;
  }
  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) visited_[key] = true;
  }
  void forget(UnitKey key) override {
    const auto at = std::ranges::find(keys_, key) - keys_.begin();
    if (!take(keys_, key)) return;
    if (static_cast<std::size_t>(at) < hand_) --hand_;
    if (hand_ >= keys_.size()) hand_ = 0;
  }
  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/, const Allowed& allowed) override {
    if (std::ranges::none_of(keys_, allowed)) return std::nullopt;
    while (!allowed(keys_[hand_]) || visited_[keys_[hand_]]) {
      if (allowed(keys_[hand_])) visited_[keys_[hand_]] = false;
      hand_ = (hand_ + 1) % keys_.size();
    }
    return keys_[hand_];
  }

 private:
  Keys keys_;
  std::map<UnitKey, bool> visited_;
  std::size_t hand_ = 0;
};

class S3Fifo final : public SizedModel {
 public:
  void resize(std::size_t slots) override {
    small_max_ = slots / 10;
    main_max_ = slots - small_max_;
  }
  void take_in(UnitKey key) override {
    uses_[key] = 0;
    const bool remembered = take(recalled_, key) || take(ghost_, key);
    const bool to_main = remembered || (!evicted_ && slots_of(small_) >= small_max_);
    (to_main ? main_ : small_).push_back(key);
  }
  void touch(std::span<const UnitKey> hits) override {
    ghost_.insert(ghost_.end(), recalled_.begin(), recalled_.end());
    recalled_.clear();
    for (const UnitKey key : hits) uses_[key] = std::min(3, uses_[key] + 1);
  }
  void forget(UnitKey key) override {
    for (Keys* const keys : {&small_, &main_, &ghost_, &recalled_}) take(*keys, key);
  }
  void miss(std::span<const UnitKey> misses) override {
    for (const UnitKey key : misses) {
      if (take(ghost_, key)) recalled_.push_back(key);
    }
  }
  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/, const Allowed& allowed) override {
    const bool main_first = slots_of(main_) > main_max_ || small_.empty();
    auto victim = main_first ? from_main(allowed) : from_small(allowed);
    if (!victim) victim = from_main(allowed);
    if (!victim) victim = from_small(allowed);
    return victim;
  }
  void evict(UnitKey key) override {
    evicted_ = true;
    if (take(main_, key)) return;
    take(small_, key);
    uses_[key] = 0;
    ghost_.push_back(key);
    while (slots_of(ghost_) > main_max_) ghost_.erase(ghost_.begin());
  }

 private:
  std::optional<UnitKey> from_main(const Allowed& allowed) {
    while (const auto key = first_of(main_, allowed)) {
      if (uses_[*key] == 0) return key;
      --uses_[*key];
      take(main_, *key);
      main_.push_back(*key);
    }
    return std::nullopt;
  }
  std::optional<UnitKey> from_small(const Allowed& allowed) {
    while (const auto key = first_of(small_, allowed)) {
      if (uses_[*key] < 2) return key;
      uses_[*key] = 0;
      take(small_, *key);
      main_.push_back(*key);
    }
    return std::nullopt;
  }

  std::size_t small_max_ = 0;
  std::size_t main_max_ = 0;
  bool evicted_ = false;
  Keys small_, main_, ghost_, recalled_;
  std::map<UnitKey, int> uses_;
};

class Arc final : public SizedModel {
 public:
  void resize(std::size_t slots) override {
    c_ = slots;
    p_ = std::min(p_, static_cast<double>(c_));
    trim();
  }
  void take_in(UnitKey key) override {
    const bool remembered = take(b1_, key) || take(b2_, key);
    (remembered ? t2_ : t1_).push_back(key);
    trim();
  }
  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) {
      take(t1_, key);
      take(t2_, key);
      t2_.push_back(key);
    }
  }
  void miss(std::span<const UnitKey> misses) override {
    const auto b1 = static_cast<double>(slots_of(b1_));
    const auto b2 = static_cast<double>(slots_of(b2_));
    for (const UnitKey key : misses) {
      if (has(b1_, key)) p_ = std::min(static_cast<double>(c_), p_ + std::max(1.0, b2 / b1));
      if (has(b2_, key)) p_ = std::max(0.0, p_ - std::max(1.0, b1 / b2));
    }
  }
  void forget(UnitKey key) override {
    for (Keys* const keys : {&t1_, &t2_, &b1_, &b2_}) take(*keys, key);
  }
  std::optional<UnitKey> choose_victim(UnitKey incoming, const Allowed& allowed) override {
    const auto t1 = static_cast<double>(slots_of(t1_));
    const bool from_t1 = t1 > 0 && (t1 > p_ || (has(b2_, incoming) && t1 == p_));
    const auto victim = first_of(from_t1 ? t1_ : t2_, allowed);
    return victim ? victim : first_of(from_t1 ? t2_ : t1_, allowed);
  }
  void evict(UnitKey key) override {
    (take(t1_, key) ? b1_ : b2_).push_back(key);
    take(t2_, key);
    trim();
  }

 private:
  void trim() {
    while (slots_of(t1_) + slots_of(b1_) > c_ && !b1_.empty()) b1_.erase(b1_.begin());
    const auto all = [&] { return slots_of(t1_) + slots_of(t2_) + slots_of(b1_) + slots_of(b2_); };
    while (all() > 2 * c_ && !b2_.empty()) b2_.erase(b2_.begin());
  }

  std::size_t c_ = 0;
  double p_ = 0;
  Keys t1_, t2_, b1_, b2_;
};

class WTinyLfu final : public SizedModel {
 public:
  void resize(std::size_t slots) override {
    window_max_ = std::max<std::size_t>(1, slots / 100);
    protected_max_ = (slots - window_max_) * 4 / 5;
    sample_ = 10 * slots;
  }
  void take_in(UnitKey key) override {
    window_.push_back(key);
    while (slots_of(window_) > window_max_) shift(window_, trial_);
  }
  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) {
      count(key);
      const bool new_still = take(window_, key);
      take(trial_, key);
      take(protected_, key);
      (new_still ? window_ : protected_).push_back(key);
      while (slots_of(protected_) > protected_max_) shift(protected_, trial_);
    }
  }
  void miss(std::span<const UnitKey> misses) override {
    for (const UnitKey key : misses) count(key);
  }
  void forget(UnitKey key) override {
    for (Keys* const keys : {&window_, &trial_, &protected_}) take(*keys, key);
    wants_.erase(key);
  }
  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/, const Allowed& allowed) override {
    const auto newcomer =
        slots_of(window_) >= window_max_ ? first_of(window_, allowed) : std::nullopt;
    Keys others = trial_;
    others.insert(others.end(), protected_.begin(), protected_.end());
    const auto resident = first_of(others, allowed);
    if (!resident) return first_of(window_, allowed);
    if (newcomer && wants_[*newcomer] <= wants_[*resident]) return newcomer;
    if (newcomer) {
      take(window_, *newcomer);
      trial_.push_back(*newcomer);
    }
    return resident;
  }
  void evict(UnitKey key) override {
    for (Keys* const keys : {&window_, &trial_, &protected_}) take(*keys, key);
  }

 private:
  static void shift(Keys& from, Keys& to) {
    to.push_back(from.front());
    from.erase(from.begin());
  }
  void count(UnitKey key) {
    if (++counted_ > sample_) {
      for (auto& [each, wants] : wants_) wants /= 2;
      counted_ = 1;
    }
    wants_[key] = std::min(15, wants_[key] + 1);
  }

  std::size_t window_max_ = 0;
  std::size_t protected_max_ = 0;
  std::size_t sample_ = 0;
  std::size_t counted_ = 0;
  Keys window_, trial_, protected_;
  std::map<UnitKey, int> wants_;
};

class Belady final : public ReplacementModel {
 public:
  explicit Belady(const Foresight& foresight) : foresight_(foresight) {}
  void track(UnitKey key, std::uint32_t /*slots*/) override {
    next_[key] = foresight_.next_step(key);
  }
  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) track(key, 0);
  }
  void forget(UnitKey key) override { next_.erase(key); }
  std::optional<UnitKey> choose_victim(UnitKey incoming, const Allowed& allowed) override {
    std::optional<UnitKey> best;
    for (const auto& [key, step] : next_) {
      if (allowed(key) && (!best || step >= next_[*best])) best = key;
    }
    if (!best) return best;
    if (incoming != no_unit && foresight_.next_step(incoming) >= next_[*best]) return std::nullopt;
    return best;
  }

 private:
  const Foresight& foresight_;
  std::map<UnitKey, std::uint64_t> next_;
};

std::unique_ptr<ReplacementModel> make_model(const std::string& name,
                                             const ReplacementOptions& options) {
  if (name == "lru") return std::make_unique<Lru>();
  if (name == "lfu") return std::make_unique<Lfu>(options.lfu_half_life);
  if (name == "lrfu") return std::make_unique<Lrfu>(options.lrfu_half_life);
  if (name == "sieve") return std::make_unique<Sieve>();
  if (name == "s3fifo") return std::make_unique<S3Fifo>();
  if (name == "wtinylfu") return std::make_unique<WTinyLfu>();
  if (name == "arc") return std::make_unique<Arc>();
  if (name == "last_steps") return std::make_unique<LastSteps>(options.last_steps);
  if (name == "belady") return std::make_unique<Belady>(*options.foresight);
  return nullptr;
}

}  // namespace

std::unique_ptr<ReplacementModel> make_replacement_model(const std::string& name, std::size_t slots,
                                                         const ReplacementOptions& options) {
  auto model = make_model(name, options);
  if (model != nullptr) model->resize(slots);
  return model;
}

}  // namespace terrace::policies
