// Which pages a container has, and where in its file there is room for more.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "container_layout.hpp"
#include "memory/free_ranges.hpp"
#include "record_block.hpp"

namespace terrace::offload {

/// A piece of the file, of whole blocks.
struct FileExtent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// Threads  one at a time
class PageDirectory {
 public:
  struct Page {
    std::uint64_t offset = 0;
    std::uint64_t checksum = 0;
    std::uint32_t bytes = 0;

    [[nodiscard]] FileExtent extent() const noexcept;
  };

  PageDirectory(const FilePart& pages, std::uint64_t pages_max);

  [[nodiscard]] const Page* find(PageKey key) const;
  [[nodiscard]] std::size_t size() const noexcept { return pages_.size(); }
  /// Bytes of all pages, without what rounding up to blocks adds.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t pages_max() const noexcept { return pages_max_; }

  /// Takes room for a page; nothing where none is left. Where the page is not recorded later, the
  /// room is to be given back.
  [[nodiscard]] std::optional<FileExtent> take(std::uint64_t bytes);
  void give_back(const FileExtent& extent);
  /// Has room that is taken never given back: the disk cannot read or write it. Returns whether
  /// that is new.
  bool retire(const FileExtent& extent) { return bad_.insert(extent.offset).second; }

  /// Takes a record over. Returns the room that is no longer used by the page; it is still taken.
  std::optional<FileExtent> apply(const PageRecord& record);

  /// To be called once all records of a file have been taken over, and before any room is taken:
  /// finds out what is free. Pages that cannot be, for they lie outside or in another, are dropped;
  /// returns how many.
  std::uint64_t find_room();
  /// Drops all pages, at that time. Returns how many.
  std::uint64_t clear();

  /// Returns a record of each page.
  [[nodiscard]] std::vector<PageRecord> records() const;

 private:
  FilePart part_;
  std::uint64_t pages_max_;
  std::unordered_map<PageKey, Page, PageKeyHash> pages_;
  std::uint64_t bytes_ = 0;
  FreeRanges<std::uint64_t> free_;
  std::unordered_set<std::uint64_t> bad_;  ///< offsets of retired room
};

}  // namespace terrace::offload
