// Doubly linked lists over dense unit keys: a key is in at most one of them. Every list is a ring
// through a head of its own, so that a touch is a few loads and stores and no branch.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "terrace/core/assert.hpp"
#include "terrace/core/replacement.hpp"

namespace terrace::policies {

/// `List` is an enumeration from 0, one enumerator for each list.
template <typename List, std::size_t list_count>
class KeyLists {
 public:
  KeyLists() : links_(list_count) {
    for (Node head = 0; head < list_count; ++head) links_[head] = {head, head};
  }

  void resize(std::size_t keys) {
    if (keys + list_count > links_.size()) links_.resize(keys + list_count);
  }

  void push_newest(List list, UnitKey key) {
    const Node head = head_of(list);
    const Node node = node_of(key);
    TERRACE_DEBUG_ASSERT(node < links_.size());
    const Node newest = links_[head].older;
    links_[node] = {.older = newest, .newer = head};
    links_[newest].newer = node;
    links_[head].older = node;
  }

  void remove(UnitKey key) {
    const Link link = links_[node_of(key)];
    links_[link.older].newer = link.newer;
    links_[link.newer].older = link.older;
  }

  /// Moves all keys of `from` to the newest end of `to`.
  void join(List to, List from) {
    if (empty(from)) return;
    const Link moved = links_[head_of(from)];
    const Node newest = links_[head_of(to)].older;
    links_[newest].newer = moved.newer;
    links_[moved.newer].older = newest;
    links_[moved.older].newer = head_of(to);
    links_[head_of(to)].older = moved.older;
    links_[head_of(from)] = {head_of(from), head_of(from)};
  }

  [[nodiscard]] bool empty(List list) const noexcept {
    return links_[head_of(list)].newer == head_of(list);
  }

  /// Returns the oldest key, or no_unit.
  [[nodiscard]] UnitKey oldest(List list) const noexcept {
    return key_of(links_[head_of(list)].newer);
  }

  /// Returns the newest key, or no_unit.
  [[nodiscard]] UnitKey newest(List list) const noexcept {
    return key_of(links_[head_of(list)].older);
  }

  /// Returns the key after `key` towards the newest, or no_unit.
  [[nodiscard]] UnitKey newer(UnitKey key) const noexcept {
    return key_of(links_[node_of(key)].newer);
  }

  /// Returns the oldest key that `evictable` accepts, or nothing.
  [[nodiscard]] std::optional<UnitKey> oldest_evictable(
      List list, FunctionRef<bool(UnitKey)> evictable) const {
    for (UnitKey key = oldest(list); key != no_unit; key = newer(key)) {
      if (evictable(key)) return key;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return links_.capacity() * sizeof(Link); }

 private:
  using Node = std::uint32_t;  ///< heads first, then keys
  struct Link {
    Node older = 0;
    Node newer = 0;
  };

  static Node head_of(List list) noexcept { return static_cast<Node>(list); }
  static Node node_of(UnitKey key) noexcept { return key + static_cast<Node>(list_count); }
  static UnitKey key_of(Node node) noexcept {
    return node < list_count ? no_unit : node - static_cast<Node>(list_count);
  }

  std::vector<Link> links_;
};

/// For policies that need one list only.
enum class TheList : std::uint8_t { all };
using KeyList = KeyLists<TheList, 1>;

}  // namespace terrace::policies
