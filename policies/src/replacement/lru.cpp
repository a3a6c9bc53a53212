// Least recently used. One list from oldest to newest use:
//   track: append at the newest end        touch: move to the newest end
//   evict: the first evictable from the oldest end
// State: 8 bytes a key. Needs hits only. Deterministic.
#include <memory>

#include "key_lists.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

class Lru final : public ReplacementPolicy {
 public:
  void track(UnitKey key, std::uint32_t /*slots*/) override {
    links_.push_newest(uses_, key);
    ++size_;
  }

  void touch(UnitKey key) override {
    links_.remove(uses_, key);
    links_.push_newest(uses_, key);
  }

  void forget(UnitKey key) override {
    links_.remove(uses_, key);
    --size_;
  }

  std::optional<UnitKey> evict(FunctionRef<bool(UnitKey)> evictable) override {
    for (UnitKey key = uses_.oldest; key != no_key; key = links_.newer(key)) {
      if (!evictable(key)) continue;
      forget(key);
      return key;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::size_t size() const noexcept override { return size_; }

 private:
  KeyLinks links_;
  KeyList uses_;
  std::size_t size_ = 0;
};

}  // namespace

std::unique_ptr<ReplacementPolicy> make_lru() { return std::make_unique<Lru>(); }

}  // namespace terrace::policies
