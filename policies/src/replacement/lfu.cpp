// Least frequently used, ties to the least recently used. Keys lie in one list per use count; the
// counts that have keys are linked in ascending order, so that every verb is O(1):
//   track: into count 1                    touch: from count f to f + 1 (at most 65,535)
//   evict: the first evictable, lowest count and oldest use first
// State: 12 bytes a key, 16 a count. Needs hits only. Deterministic. No ageing: a unit that was hot
// long ago stays; see PQCache (arXiv 2407.12820), whose cache counts the same way.
#include <algorithm>
#include <memory>
#include <vector>

#include "key_lists.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

class Lfu final : public ReplacementPolicy {
 public:
  Lfu() : counts_(1) {}

  void track(UnitKey key, std::uint32_t /*slots*/) override {
    if (key >= count_of_.size()) count_of_.resize(std::size_t{key} + 1);
    insert(key, 1, 0);
    ++size_;
  }

  void touch(UnitKey key) override {
    const Count from = count_of_[key];
    const Count to = std::min(from + 1, highest_count);
    // Insert behind `from` before taking the key out, while `from` is surely still linked.
    links_.remove(counts_[from].keys, key);
    insert(key, to, from == to ? counts_[from].lower : from);
    unlink_if_empty(from);
  }

  void forget(UnitKey key) override {
    const Count count = count_of_[key];
    links_.remove(counts_[count].keys, key);
    unlink_if_empty(count);
    --size_;
  }

  std::optional<UnitKey> evict(FunctionRef<bool(UnitKey)> evictable) override {
    for (Count count = counts_[0].higher; count != 0; count = counts_[count].higher) {
      for (UnitKey key = counts_[count].keys.oldest; key != no_key; key = links_.newer(key)) {
        if (!evictable(key)) continue;
        forget(key);
        return key;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }

 private:
  using Count = std::uint32_t;
  static constexpr Count highest_count = 0xffff;

  // Entry 0 is the ring's head: its `higher` is the lowest count in use.
  struct Bucket {
    KeyList keys;
    Count lower = 0;
    Count higher = 0;
    bool linked = false;
  };

  void insert(UnitKey key, Count count, Count after) {
    if (count >= counts_.size()) counts_.resize(std::size_t{count} + 1);
    Bucket& bucket = counts_[count];
    if (!bucket.linked) {
      bucket.lower = after;
      bucket.higher = counts_[after].higher;
      counts_[bucket.higher].lower = count;
      counts_[after].higher = count;
      bucket.linked = true;
    }
    links_.push_newest(bucket.keys, key);
    count_of_[key] = count;
  }

  void unlink_if_empty(Count count) {
    Bucket& bucket = counts_[count];
    if (!bucket.linked || !bucket.keys.empty()) return;
    counts_[bucket.lower].higher = bucket.higher;
    counts_[bucket.higher].lower = bucket.lower;
    bucket.linked = false;
  }

  KeyLinks links_;
  std::vector<Bucket> counts_;
  std::vector<Count> count_of_;
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_lfu() { return std::make_unique<Lfu>(); }

}  // namespace terrace::policies
