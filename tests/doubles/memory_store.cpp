#include "doubles/memory_store.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "storage/page_parts.hpp"
#include "storage/store_errors.hpp"

namespace terrace::doubles {

using offload::PageParts;
using offload::PagePiece;

namespace {

constexpr std::uint64_t part_bytes = 64;  // small, so that small pages have several

std::uint64_t checksum(std::span<const std::byte> page, const PagePiece& part) noexcept {
  return XXH3_64bits(page.data() + part.begin, part.bytes);
}

}  // namespace

Result<StoreTicket> MemoryStore::do_submit(std::span<PageRequest> batch,
                                           const BatchOptions& /*options*/) {
  TERRACE_TRY(offload::check_batch(name(), batch));
  const std::scoped_lock lock(mutex_);
  for (PageRequest& request : batch) request.status = carry_out(request);
  const auto reads = [](const PageRequest& request) {
    return request.verb == PageVerb::get || request.verb == PageVerb::get_part;
  };
  if (std::ranges::any_of(batch, reads)) ++read_batches_;
  StoreTicket ticket{.number = ++batches_};
  ticket.done.set();
  return ticket;
}

Status MemoryStore::carry_out(PageRequest& request) {
  TERRACE_TRY(offload::check_memory(name(), request));
  switch (request.verb) {
    case PageVerb::get:
    case PageVerb::get_part:
      return get(request);
    case PageVerb::put:
      return put(request);
    case PageVerb::erase:
      return erase(request);
    case PageVerb::find:
      return find(request);
  }
  return fail(Errc::invalid_argument, "store {}: no such verb", name());
}

Status MemoryStore::get(const PageRequest& request) const {
  const auto found = pages_.find(request.key);
  if (found == pages_.end()) return offload::unknown_page(name(), request.key);
  const Page& page = found->second;
  TERRACE_TRY(offload::check_range(name(), request, page.bytes.size()));
  const bool is_part = request.verb == PageVerb::get_part;
  const std::size_t begin = is_part ? request.offset : 0;
  if (!is_whole(page, begin, request.bytes)) {
    return is_part ? offload::corrupt_part(name(), request)
                   : offload::corrupt_page(name(), request.key);
  }
  if (request.bytes != 0) std::memcpy(request.data, page.bytes.data() + begin, request.bytes);
  return {};
}

bool MemoryStore::is_whole(const Page& page, std::size_t begin, std::size_t bytes) {
  const PageParts parts(page.bytes.size(), part_bytes);
  const std::size_t end = begin + bytes;
  for (std::uint64_t number = 0; number < parts.count(); ++number) {
    const PagePiece part = parts.part(number);
    const bool is_read = part.begin < end && begin < part.end();
    if (is_read && checksum(page.bytes, part) != page.checksums[number]) return false;
  }
  return true;
}

Status MemoryStore::put(const PageRequest& request) {
  const auto found = pages_.find(request.key);
  const std::size_t before = found == pages_.end() ? 0 : found->second.bytes.size();
  const std::size_t others = bytes_in_use_ - before;
  if (request.bytes > options_.capacity_bytes || others > options_.capacity_bytes - request.bytes) {
    return fail(Errc::out_of_memory, "store {} holds {} of {} bytes; {} more do not fit", name(),
                bytes_in_use_, options_.capacity_bytes, request.bytes);
  }
  Page& page = pages_[request.key];
  page.bytes.assign(request.data, request.data + request.bytes);
  page.checksums.clear();
  const PageParts parts(request.bytes, part_bytes);
  for (std::uint64_t number = 0; number < parts.count(); ++number) {
    page.checksums.push_back(checksum(page.bytes, parts.part(number)));
  }
  bytes_in_use_ = others + request.bytes;
  return {};
}

Status MemoryStore::erase(const PageRequest& request) {
  const auto found = pages_.find(request.key);
  if (found == pages_.end()) return offload::unknown_page(name(), request.key);
  bytes_in_use_ -= found->second.bytes.size();
  pages_.erase(found);
  return {};
}

Status MemoryStore::find(PageRequest& request) const {
  const auto found = pages_.find(request.key);
  request.bytes = found == pages_.end() ? 0 : found->second.bytes.size();
  if (found == pages_.end()) return offload::unknown_page(name(), request.key);
  return {};
}

std::uint64_t MemoryStore::read_batches() const {
  const std::scoped_lock lock(mutex_);
  return read_batches_;
}

StoreUsage MemoryStore::usage() const {
  const std::scoped_lock lock(mutex_);
  return {.pages = pages_.size(),
          .pages_max = pages_.max_size(),
          .page_bytes = bytes_in_use_,
          .used_bytes = bytes_in_use_,
          .free_bytes = options_.capacity_bytes - bytes_in_use_};
}

bool MemoryStore::damage(PageKey key, std::size_t byte) {
  const std::scoped_lock lock(mutex_);
  const auto found = pages_.find(key);
  if (found == pages_.end() || byte >= found->second.bytes.size()) return false;
  found->second.bytes[byte] ^= std::byte{1};
  return true;
}

}  // namespace terrace::doubles
