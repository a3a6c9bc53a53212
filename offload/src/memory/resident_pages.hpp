// Pages of stores that are on the host: a sequence that needs one shares it with those that have
// it.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "terrace/core/store.hpp"
#include "terrace/offload/host_pages.hpp"

namespace terrace::offload {

/// Names bytes of a store: whatever source they come from, they are the same.
struct BytesName {
  PageKey key = {};
  std::uint64_t offset = 0;
  bool operator==(const BytesName&) const = default;
};

/// A page counts its holders. It is forgotten with the last of them, and when one of them keeps it
/// for itself: the page may be written then.
///
/// Threads  one at a time
class ResidentPages {
 public:
  explicit ResidentPages(HostPagePool& pool) noexcept : pool_(pool) {}

  /// Returns the page that has the bytes, with one holder and one reference more; a hole if there
  /// is none.
  PageHandle share(const BytesName& name);
  /// Notes a page that was read, and its holder. If another one has been read meanwhile, the holder
  /// gets that one. Returns the page.
  PageHandle note(const BytesName& name, PageHandle page);
  /// Another holder has a reference to a page.
  void add_holder(const BytesName& name, PageHandle page);
  /// A holder gives its reference back.
  void give_back(const BytesName& name, PageHandle page) noexcept;
  /// A holder keeps its reference, and the page is not the bytes' any more.
  void forget(const BytesName& name, PageHandle page) noexcept;

 private:
  struct Resident {
    PageHandle page;
    std::uint32_t holders = 1;
  };
  struct Hash {
    std::size_t operator()(const BytesName& name) const noexcept {
      return PageKeyHash{}({.high = name.key.high + name.offset, .low = name.key.low});
    }
  };
  using Entry = std::unordered_map<BytesName, Resident, Hash>::iterator;

  /// Returns the entry of bytes that are in this page; end() if there is none.
  Entry find(const BytesName& name, PageHandle page);

  HostPagePool& pool_;
  std::unordered_map<BytesName, Resident, Hash> pages_;
};

}  // namespace terrace::offload
