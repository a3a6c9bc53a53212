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

/// Returns the room that a page takes.
[[nodiscard]] FileExtent extent_of(const StoredPage& page) noexcept;

struct DirectoryLimits {
  std::uint64_t pages_max = 0;
  std::uint64_t part_bytes = 0;  ///< PageParts
};

/// Threads  one at a time
class PageDirectory {
 public:
  PageDirectory(const FilePart& pages, const DirectoryLimits& limits);

  [[nodiscard]] const StoredPage* find(PageKey key) const;
  [[nodiscard]] std::size_t size() const noexcept { return pages_.size(); }
  /// Once find_room() has been called.
  [[nodiscard]] StoreUsage usage() const noexcept;
  [[nodiscard]] std::uint64_t pages_max() const noexcept { return limits_.pages_max; }
  [[nodiscard]] PageParts parts_of(std::uint64_t page_bytes) const noexcept {
    return {page_bytes, limits_.part_bytes};
  }

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
  /// finds out what is free. Pages that cannot be, for they lie outside or in another, or have
  /// another number of checksums than parts, are dropped; returns how many.
  std::uint64_t find_room();
  /// Drops all pages, at that time. Returns how many.
  std::uint64_t clear();

  /// Returns a record of each page.
  [[nodiscard]] std::vector<PageRecord> records() const;

 private:
  [[nodiscard]] bool can_be(const StoredPage& page, std::uint64_t begin) const;

  FilePart part_;
  DirectoryLimits limits_;
  std::unordered_map<PageKey, StoredPage, PageKeyHash> pages_;
  std::uint64_t page_bytes_ = 0;
  std::uint64_t used_bytes_ = 0;  ///< with what rounding up to blocks adds
  FreeRanges<std::uint64_t> free_;
  std::unordered_set<std::uint64_t> bad_;  ///< offsets of retired room
};

}  // namespace terrace::offload
