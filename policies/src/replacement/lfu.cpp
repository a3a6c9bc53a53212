// Least frequently used, ties to the least recently used. Keys lie in one list per use count; the
// counts that have keys are linked in ascending order, so that every verb is O(1):
//   track: into count 1                    touch: from count f to f + 1
//   choose_victim: the first evictable, lowest count and oldest use first
// Without ageing a unit that was hot long ago stays for good (PQCache, arXiv 2407.12820, counts
// so); with a half-life of h steps every count is halved each h steps, in O(tracked). State: 12
// bytes a key, 24 a slot, of as many slots as keys at most. Needs hits only. Deterministic.
#include <algorithm>
#include <vector>

#include "rows.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::policies {
namespace {

class Lfu final : public ReplacementPolicy {
 public:
  explicit Lfu(std::size_t half_life) : half_life_(half_life), buckets_(1) {}

  void resize(const CacheExtent& extent) override {
    if (extent.keys > keys_.size()) keys_.resize(extent.keys);
    // As many counts as tracked keys at most, and one while a key moves on.
    while (buckets_.size() < std::min(extent.slots, extent.keys) + 2) {
      buckets_.push_back({.higher = free_});
      free_ = static_cast<BucketId>(buckets_.size() - 1);
    }
  }

  void track(UnitKey key, std::uint32_t /*slots*/) override {
    append(key, bucket_behind(head, 1));
    ++size_;
  }

  void touch(std::span<const UnitKey> hits) override {
    ++step_;
    if (half_life_ != 0 && step_ % half_life_ == 0) halve();
    for (const UnitKey key : hits) {
      const BucketId from = keys_[key].bucket;
      const BucketId to = bucket_behind(from, buckets_[from].count + 1);
      remove(key);
      append(key, to);
      unlink_if_empty(from);
    }
  }

  void forget(UnitKey key) override {
    const BucketId bucket = keys_[key].bucket;
    if (bucket == head) return;
    remove(key);
    keys_[key].bucket = head;
    unlink_if_empty(bucket);
    --size_;
  }

  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/,
                                       FunctionRef<bool(UnitKey)> evictable) override {
    for (BucketId bucket = buckets_[head].higher; bucket != head;
         bucket = buckets_[bucket].higher) {
      for (UnitKey key = buckets_[bucket].oldest; key != no_unit; key = keys_[key].newer) {
        if (evictable(key)) return key;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    return keys_.capacity() * sizeof(Key) + buckets_.capacity() * sizeof(Bucket);
  }

 private:
  using BucketId = std::uint32_t;
  static constexpr BucketId head = 0;  ///< of the ring of counts; a key's bucket where untracked

  struct Key {
    UnitKey older = no_unit;
    UnitKey newer = no_unit;
    BucketId bucket = head;
  };
  struct Bucket {
    std::uint64_t count = 0;
    UnitKey oldest = no_unit;
    UnitKey newest = no_unit;
    BucketId lower = head;
    BucketId higher = head;
  };

  /// Returns the bucket of `count`, whose place is directly after `lower`.
  BucketId bucket_behind(BucketId lower, std::uint64_t count) {
    const BucketId next = buckets_[lower].higher;
    if (next != head && buckets_[next].count == count) return next;
    const BucketId made = free_;
    TERRACE_DEBUG_ASSERT(made != head);
    free_ = buckets_[made].higher;
    buckets_[made] = {.count = count, .lower = lower, .higher = next};
    buckets_[lower].higher = made;
    buckets_[next].lower = made;
    return made;
  }

  void unlink_if_empty(BucketId id) {
    Bucket& bucket = buckets_[id];
    if (bucket.oldest != no_unit) return;
    buckets_[bucket.lower].higher = bucket.higher;
    buckets_[bucket.higher].lower = bucket.lower;
    bucket.higher = free_;
    free_ = id;
  }

  void append(UnitKey key, BucketId id) {
    Bucket& bucket = buckets_[id];
    keys_[key] = {.older = bucket.newest, .newer = no_unit, .bucket = id};
    (bucket.newest == no_unit ? bucket.oldest : keys_[bucket.newest].newer) = key;
    bucket.newest = key;
  }

  void remove(UnitKey key) {
    const Key links = keys_[key];
    Bucket& bucket = buckets_[links.bucket];
    (links.older == no_unit ? bucket.oldest : keys_[links.older].newer) = links.newer;
    (links.newer == no_unit ? bucket.newest : keys_[links.newer].older) = links.older;
  }

  /// Halves all counts, to 1 at least; of two that become one the lower comes first.
  void halve() {
    BucketId next = head;
    for (BucketId id = buckets_[head].higher; id != head; id = next) {
      next = buckets_[id].higher;
      buckets_[id].count = std::max<std::uint64_t>(1, buckets_[id].count / 2);
      const BucketId lower = buckets_[id].lower;
      if (lower == head || buckets_[lower].count != buckets_[id].count) continue;
      while (buckets_[id].oldest != no_unit) {
        const UnitKey key = buckets_[id].oldest;
        remove(key);
        append(key, lower);
      }
      unlink_if_empty(id);
    }
  }

  std::size_t half_life_;
  std::uint64_t step_ = 0;
  std::vector<Key> keys_;
  std::vector<Bucket> buckets_;
  BucketId free_ = head;  ///< chained by `higher`
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_lfu(const ReplacementOptions& options) {
  return std::make_unique<Lfu>(options.lfu_half_life);
}

}  // namespace terrace::policies
