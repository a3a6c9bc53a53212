#include "terrace/offload/host_pages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t region_pages_max = std::numeric_limits<std::uint32_t>::max();

// The system clears each page of a region as it is mapped: short runs pay for little, and a step
// that has to wait for a region waits for no more than the pages before it took.
constexpr std::size_t first_region_bytes = std::size_t{4} << 20;

}  // namespace

Result<std::unique_ptr<HostPagePool>> HostPagePool::create(Backend& backend,
                                                           const HostPageOptions& options) {
  if (options.page_bytes == 0) return fail(Errc::invalid_argument, "host pages of zero bytes");
  return std::unique_ptr<HostPagePool>(new HostPagePool(backend, options));
}

Result<PageHandle> HostPagePool::allocate() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) TERRACE_TRY(grow());
  const PageHandle page = free_.back();
  free_.pop_back();
  regions_[page.region].references[page.offset] = 1;
  return page;
}

Status HostPagePool::check_room(std::size_t pages) const {
  const std::lock_guard lock(mutex_);
  if (pages <= free_.size()) return {};
  const std::size_t missing = pages - free_.size();
  if (missing <= growth_max()) return {};
  return tl::unexpected(out_of_memory(missing));
}

std::size_t HostPagePool::growth_max() const noexcept {
  const MemoryUsage usage = backend_.memory(Tier::host);
  const std::size_t taken = pages_ * page_bytes_;
  return std::min(usage.limit - std::min(usage.limit, usage.in_use),
                  options_.bytes_max - std::min(options_.bytes_max, taken)) /
         page_bytes_;
}

Error HostPagePool::out_of_memory(std::size_t missing) const {
  const MemoryUsage usage = backend_.memory(Tier::host);
  // If pages may take all of it, there is no store below the host.
  const bool has_store = options_.bytes_max <= usage.limit;
  const std::string of_rows =
      has_store ? fmt::format(", of which pages may take {}", format_size(options_.bytes_max))
                : std::string();
  Error error = make_error(Errc::out_of_memory,
                           "host.memory is {}{}, {} in use; {} more wanted for {}: raise it{}",
                           format_size(usage.limit), of_rows, format_size(usage.in_use),
                           format_size(missing * page_bytes_), to_string(options_.purpose),
                           has_store ? "" : ", or name a file for rows in tier.nvme.path");
  error.lacks = Tier::host;
  return error;
}

void HostPagePool::set_bytes_max(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  options_.bytes_max = bytes;
}

std::size_t HostPagePool::trim() noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (std::uint32_t region = 0; region < regions_.size(); ++region) {
    Region& one = regions_[region];
    const auto in_use = [](std::uint32_t references) { return references != 0; };
    if (one.references.empty() || std::ranges::any_of(one.references, in_use)) continue;
    bytes += one.references.size() * page_bytes_;
    pages_ -= one.references.size();
    std::erase_if(free_, [&](const PageHandle& page) { return page.region == region; });
    one = {};
  }
  return bytes;
}

std::vector<std::uint32_t> HostPagePool::sparse_regions() const {
  struct Use {
    std::uint32_t region = 0;
    std::ptrdiff_t pages = 0;
  };
  std::vector<Use> uses;
  {
    const std::lock_guard lock(mutex_);
    for (std::uint32_t region = 0; region < regions_.size(); ++region) {
      const auto& references = regions_[region].references;
      const auto free = std::ranges::count(references, 0U);
      const std::ptrdiff_t pages = std::ssize(references) - free;
      if (pages > 0) uses.push_back({.region = region, .pages = pages});
    }
  }
  std::ranges::stable_sort(uses, {}, &Use::pages);
  std::vector<std::uint32_t> regions;
  regions.reserve(uses.size());
  for (const Use& use : uses) regions.push_back(use.region);
  return regions;
}

void HostPagePool::share(PageHandle page) noexcept {
  const std::lock_guard lock(mutex_);
  ++count_of(page);
}

void HostPagePool::release(PageHandle page) noexcept {
  const std::lock_guard lock(mutex_);
  if (--count_of(page) == 0) free_.push_back(page);
}

std::uint32_t HostPagePool::references(PageHandle page) const noexcept {
  const std::lock_guard lock(mutex_);
  return regions_[page.region].references[page.offset];
}

std::byte* HostPagePool::resolve(PageHandle page) const noexcept {
  const std::lock_guard lock(mutex_);
  return regions_[page.region].memory.data() + page.offset * page_bytes_;
}

std::size_t HostPagePool::pages_in_use() const noexcept {
  const std::lock_guard lock(mutex_);
  return pages_ - free_.size();
}

std::size_t HostPagePool::page_count() const noexcept {
  const std::lock_guard lock(mutex_);
  return pages_;
}

std::uint32_t& HostPagePool::count_of(PageHandle page) noexcept {
  std::uint32_t& count = regions_[page.region].references[page.offset];
  TERRACE_ASSERT(count != 0);
  return count;
}

Status HostPagePool::grow() {
  const std::size_t region_bytes =
      std::min(std::max(pages_ * page_bytes_, first_region_bytes), options_.region_bytes);
  std::size_t pages = std::clamp(region_bytes / page_bytes_, std::size_t{1}, region_pages_max);
  if (options_.bytes_max / page_bytes_ <= pages_) return tl::unexpected(out_of_memory(1));
  pages = std::min(pages, options_.bytes_max / page_bytes_ - pages_);
  const auto allocate = [&] {
    return backend_.allocate({.bytes = pages * page_bytes_,
                              .alignment = options_.alignment,
                              .tier = Tier::host,
                              .purpose = options_.purpose});
  };
  Result<Buffer> memory = allocate();
  while (!memory && memory.error().code == Errc::out_of_memory && pages > 1) {
    pages /= 2;
    memory = allocate();
  }
  if (!memory) {
    return tl::unexpected(memory.error().while_doing("host.memory has no room for a page"));
  }
  add_region(std::move(*memory), pages);
  return {};
}

void HostPagePool::add_region(Buffer memory, std::size_t pages) {
  // A region that was given back leaves its number.
  auto place = std::ranges::find_if(regions_, [](const Region& one) { return !one.memory; });
  if (place == regions_.end()) place = regions_.insert(place, Region{});
  *place = {.memory = std::move(memory), .references = std::vector<std::uint32_t>(pages)};
  const auto region = static_cast<std::uint32_t>(place - regions_.begin());
  pages_ += pages;
  free_.reserve(pages_);
  // Low addresses first: the last handle is taken first.
  for (std::size_t i = pages; i > 0; --i) {
    free_.push_back({.region = region, .offset = static_cast<std::uint32_t>(i - 1)});
  }
}

PageTable::PageTable(PageTable&& other) noexcept
    : pool_(other.pool_), pages_(std::exchange(other.pages_, {})) {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  if (this != &other) {
    truncate(0);
    pool_ = other.pool_;
    pages_ = std::exchange(other.pages_, {});
  }
  return *this;
}

Result<std::byte*> PageTable::append() {
  TERRACE_ASSIGN(const PageHandle page, pool_->allocate());
  pages_.push_back(page);
  return pool_->resolve(page);
}

PageTable PageTable::fork() const {
  PageTable branch(*pool_);
  branch.pages_ = pages_;
  for (const PageHandle page : pages_) {
    if (!page.is_hole()) pool_->share(page);
  }
  return branch;
}

Result<std::byte*> PageTable::make_writable(std::size_t index) {
  PageHandle& page = pages_[index];
  if (pool_->references(page) > 1) {
    TERRACE_ASSIGN(const PageHandle own, pool_->allocate());
    std::memcpy(pool_->resolve(own), pool_->resolve(page), pool_->page_bytes());
    pool_->release(std::exchange(page, own));
  }
  return pool_->resolve(page);
}

void PageTable::release(std::size_t index) noexcept {
  const PageHandle page = take_out(index);
  if (!page.is_hole()) pool_->release(page);
}

std::byte* PageTable::fill(std::size_t index, PageHandle page) noexcept {
  TERRACE_ASSERT(pages_[index].is_hole());
  pages_[index] = page;
  return pool_->resolve(page);
}

void PageTable::truncate(std::size_t count) noexcept {
  while (pages_.size() > count) {
    release(pages_.size() - 1);
    pages_.pop_back();
  }
}

}  // namespace terrace::offload
