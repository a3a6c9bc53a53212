#include "page_directory.hpp"

#include <algorithm>
#include <utility>

#include "terrace/core/bytes.hpp"

namespace terrace::offload {

FileExtent extent_of(const StoredPage& page) noexcept {
  return {page.offset, align_up(page.bytes, StorageFile::alignment)};
}

PageDirectory::PageDirectory(const FilePart& pages, const DirectoryLimits& limits)
    : part_(pages), limits_(limits) {}

const StoredPage* PageDirectory::find(PageKey key) const {
  const auto found = pages_.find(key);
  return found == pages_.end() ? nullptr : &found->second;
}

StoreUsage PageDirectory::usage() const noexcept {
  return {.pages = pages_.size(),
          .pages_max = limits_.pages_max,
          .page_bytes = page_bytes_,
          .used_bytes = used_bytes_,
          .reserved_bytes = part_.bytes - used_bytes_ - free_.bytes(),
          .free_bytes = free_.bytes()};
}

std::optional<FileExtent> PageDirectory::take(std::uint64_t bytes) {
  const std::uint64_t rounded = align_up(bytes, StorageFile::alignment);
  const auto offset = free_.take(rounded, 1);  // all in it is aligned
  if (!offset) return std::nullopt;
  return FileExtent{*offset, rounded};
}

void PageDirectory::give_back(const FileExtent& extent) {
  if (bad_.contains(extent.offset)) return;
  free_.put(extent.offset, extent.bytes, {part_.begin, part_.bytes});
}

std::optional<FileExtent> PageDirectory::apply(const PageRecord& record) {
  std::optional<FileExtent> unused;
  const auto found = pages_.find(record.key);
  if (found != pages_.end()) {
    unused = extent_of(found->second);
    page_bytes_ -= found->second.bytes;
    used_bytes_ -= unused->bytes;
  }
  if (record.page.bytes == 0) {
    if (found != pages_.end()) pages_.erase(found);
    return unused;
  }
  page_bytes_ += record.page.bytes;
  used_bytes_ += extent_of(record.page).bytes;
  pages_.insert_or_assign(record.key, record.page);
  return unused;
}

/// Whether a page may lie where it does, if other pages take everything before `begin`.
bool PageDirectory::can_be(const StoredPage& page, std::uint64_t begin) const {
  const FileExtent extent = extent_of(page);
  return extent.offset >= begin && extent.offset % StorageFile::alignment == 0 &&
         extent.offset <= part_.end() && extent.bytes <= part_.end() - extent.offset &&
         page.checksums.count() == parts_of(page.bytes).count();
}

std::uint64_t PageDirectory::find_room() {
  std::vector<PageRecord> all = records();
  std::ranges::sort(all, {}, [](const PageRecord& record) { return record.page.offset; });
  std::uint64_t used = part_.begin;  // all before it is dealt with
  std::uint64_t dropped = 0;
  const auto leave_free = [&](std::uint64_t end) {
    if (end > used) give_back({used, end - used});
  };
  for (const PageRecord& record : all) {
    const FileExtent extent = extent_of(record.page);
    if (!can_be(record.page, used)) {
      apply({.key = record.key});
      ++dropped;
      continue;
    }
    leave_free(extent.offset);
    used = extent.offset + extent.bytes;
  }
  leave_free(part_.end());
  return dropped;
}

std::uint64_t PageDirectory::clear() {
  page_bytes_ = used_bytes_ = 0;
  return std::exchange(pages_, {}).size();
}

std::vector<PageRecord> PageDirectory::records() const {
  std::vector<PageRecord> all;
  all.reserve(pages_.size());
  for (const auto& [key, page] : pages_) all.push_back({.key = key, .page = page});
  return all;
}

}  // namespace terrace::offload
