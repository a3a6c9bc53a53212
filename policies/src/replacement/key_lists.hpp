// Doubly linked lists over dense unit keys: a key is in at most one list. Links lie in two arrays,
// so that a touch is a few loads and nothing is allocated once the largest key has been seen.
#pragma once

#include <vector>

#include "terrace/core/assert.hpp"
#include "terrace/core/replacement.hpp"

namespace terrace::policies {

inline constexpr UnitKey no_key = 0xffffffffU;

struct KeyList {
  UnitKey oldest = no_key;
  UnitKey newest = no_key;
  [[nodiscard]] bool empty() const noexcept { return oldest == no_key; }
};

class KeyLinks {
 public:
  void push_newest(KeyList& list, UnitKey key) {
    if (key >= links_.size()) links_.resize(std::size_t{key} + 1);
    links_[key] = {.older = list.newest, .newer = no_key};
    (list.empty() ? list.oldest : links_[list.newest].newer) = key;
    list.newest = key;
  }

  void remove(KeyList& list, UnitKey key) {
    TERRACE_DEBUG_ASSERT(key < links_.size());
    const Link link = links_[key];
    (link.older == no_key ? list.oldest : links_[link.older].newer) = link.newer;
    (link.newer == no_key ? list.newest : links_[link.newer].older) = link.older;
  }

  /// Returns the key after `key` towards the newest, or no_key.
  [[nodiscard]] UnitKey newer(UnitKey key) const noexcept { return links_[key].newer; }

 private:
  struct Link {
    UnitKey older = no_key;
    UnitKey newer = no_key;
  };
  std::vector<Link> links_;
};

}  // namespace terrace::policies
