// Reference-counted host pages of one size, and the table of a sequence's layer. Fork, prefix
// sharing and colder tiers use them. A page is a block of rows, [kv_heads, block_tokens].
//
//   auto pool = HostPagePool::create(backend, {.page_bytes = block_bytes});
//   PageTable table(*pool);
//   std::byte* rows = table.append().value();
//   PageTable branch = table.fork();            // shares every page
//   branch.make_writable(0);                    // copies a shared page before it is written
//
// Threads  the pool from any thread; a table from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "terrace/core/backend.hpp"

namespace terrace::offload {

/// Names a page without pointing at it: region, and offset in it in pages. It means the same to
/// every process that maps the regions.
struct PageHandle {
  static constexpr std::uint32_t no_region = 0xffffffffU;

  std::uint32_t region = 0;
  std::uint32_t offset = 0;
  /// Stands for a page that has been given back, or is not there yet.
  [[nodiscard]] static constexpr PageHandle hole() noexcept { return {.region = no_region}; }
  [[nodiscard]] bool is_hole() const noexcept { return region == no_region; }
  bool operator==(const PageHandle&) const = default;
};

struct HostPageOptions {
  std::size_t page_bytes = 0;
  std::size_t region_bytes = std::size_t{64} << 20;                 ///< most bytes of a region
  std::size_t alignment = 4096;                                     ///< of regions
  std::size_t bytes_max = std::numeric_limits<std::size_t>::max();  ///< of all regions
  Purpose purpose = Purpose::kv;
};

class HostPagePool {
 public:
  /// Makes a pool that grows by regions of the backend's host memory: the first is small, and each
  /// further one is as large as all before it, up to `region_bytes`. The backend must outlive it.
  /// Errors: invalid_argument for zero bytes.
  [[nodiscard]] static Result<std::unique_ptr<HostPagePool>> create(Backend& backend,
                                                                    const HostPageOptions& options);

  /// Returns a page with one reference. Cost: O(1), no allocation while a region has room.
  /// Errors: out_of_memory naming host.memory.
  [[nodiscard]] Result<PageHandle> allocate();

  /// Returns whether so many pages are free or fit into the limit of the backend's host memory.
  /// Nothing is taken. Errors: out_of_memory naming host.memory.
  [[nodiscard]] Status check_room(std::size_t pages) const;

  /// Sets the largest sum of bytes of all regions. Existing regions stay.
  void set_bytes_max(std::size_t bytes) noexcept;

  /// Gives regions without a page in use back to the backend; returns their bytes.
  std::size_t trim() noexcept;

  /// Returns the regions with pages in use, those first that have the fewest.
  [[nodiscard]] std::vector<std::uint32_t> sparse_regions() const;

  /// Adds a reference.
  void share(PageHandle page) noexcept;

  /// Takes a reference away; the last one frees the page.
  void release(PageHandle page) noexcept;

  [[nodiscard]] std::uint32_t references(PageHandle page) const noexcept;

  [[nodiscard]] std::byte* resolve(PageHandle page) const noexcept;

  [[nodiscard]] std::size_t page_bytes() const noexcept { return page_bytes_; }
  [[nodiscard]] std::size_t pages_in_use() const noexcept;
  [[nodiscard]] std::size_t page_count() const noexcept;

 private:
  struct Region {
    Buffer memory;
    std::vector<std::uint32_t> references;
  };

  HostPagePool(Backend& backend, const HostPageOptions& options) noexcept
      : backend_(backend), options_(options), page_bytes_(options.page_bytes) {}
  // With the lock held.
  Status grow();
  /// Pages that new regions may add to the existing ones.
  [[nodiscard]] std::size_t growth_max() const noexcept;
  [[nodiscard]] Error out_of_memory(std::size_t missing) const;
  void add_region(Buffer memory, std::size_t pages);
  std::uint32_t& count_of(PageHandle page) noexcept;

  Backend& backend_;
  HostPageOptions options_;
  std::size_t page_bytes_;
  mutable std::mutex mutex_;
  std::size_t pages_ = 0;
  std::vector<Region> regions_;
  std::vector<PageHandle> free_;  ///< capacity for all pages
};

/// The pages of one layer of one sequence, in order. The pool must outlive it.
class PageTable {
 public:
  explicit PageTable(HostPagePool& pool) noexcept : pool_(&pool) {}
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;
  ~PageTable() { truncate(0); }

  /// Appends a new page; returns its memory. Errors: out_of_memory naming host.memory.
  [[nodiscard]] Result<std::byte*> append();

  /// Appends holes, to be filled.
  void append_holes(std::size_t count) { pages_.resize(pages_.size() + count, PageHandle::hole()); }

  /// Returns a table that shares all pages.
  [[nodiscard]] PageTable fork() const;

  /// Returns whether page `index` has other owners.
  [[nodiscard]] bool shared(std::size_t index) const noexcept {
    return !pages_[index].is_hole() && pool_->references(pages_[index]) > 1;
  }

  /// Gives a page back out of the middle: a hole stays, which must not be read or written.
  void release(std::size_t index) noexcept;

  /// Takes a page out of the middle, with its reference: a hole stays.
  [[nodiscard]] PageHandle take_out(std::size_t index) noexcept {
    return std::exchange(pages_[index], PageHandle::hole());
  }

  /// Fills a hole with a page, whose reference becomes the table's. Returns its memory.
  std::byte* fill(std::size_t index, PageHandle page) noexcept;

  /// Makes sure that page `index` has no other owner, so that it may be written; copies it if need
  /// be, at once. Work that still writes into the page must be done before. Returns its memory.
  /// Errors: out_of_memory naming host.memory; the page is still shared then.
  [[nodiscard]] Result<std::byte*> make_writable(std::size_t index);

  /// Keeps the first `count` pages.
  void truncate(std::size_t count) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return pages_.size(); }
  [[nodiscard]] std::span<const PageHandle> pages() const noexcept { return pages_; }
  /// Null for a hole.
  [[nodiscard]] std::byte* operator[](std::size_t index) const noexcept {
    return pages_[index].is_hole() ? nullptr : pool_->resolve(pages_[index]);
  }

 private:
  HostPagePool* pool_;
  std::vector<PageHandle> pages_;
};

}  // namespace terrace::offload
