#include "doubles/memory_store.hpp"

#include <xxhash.h>

#include <cstring>

#include "storage/store_errors.hpp"

namespace terrace::doubles {
namespace {

std::uint64_t checksum(const std::vector<std::byte>& bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace

Result<StoreTicket> MemoryStore::submit(std::span<PageRequest> batch) {
  TERRACE_TRY(offload::check_batch(name(), batch));
  const std::scoped_lock lock(mutex_);
  for (PageRequest& request : batch) request.status = carry_out(request);
  return StoreTicket{++batches_};
}

Result<bool> MemoryStore::poll(StoreTicket ticket) {
  const std::scoped_lock lock(mutex_);
  if (ticket.number > batches_) return offload::unknown_batch(name(), ticket);
  return true;
}

Status MemoryStore::wait(StoreTicket ticket, Duration /*timeout*/) {
  TERRACE_TRY(poll(ticket));
  return {};
}

Status MemoryStore::carry_out(PageRequest& request) {
  TERRACE_TRY(offload::check_memory(name(), request));
  switch (request.verb) {
    case PageVerb::get:
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
  if (page.bytes.size() != request.bytes) {
    return offload::other_size(name(), request, page.bytes.size());
  }
  if (checksum(page.bytes) != page.checksum) return offload::corrupt_page(name(), request.key);
  if (request.bytes != 0) std::memcpy(request.data, page.bytes.data(), request.bytes);
  return {};
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
  page.checksum = checksum(page.bytes);
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

std::size_t MemoryStore::page_count() const {
  const std::scoped_lock lock(mutex_);
  return pages_.size();
}

std::size_t MemoryStore::bytes_in_use() const {
  const std::scoped_lock lock(mutex_);
  return bytes_in_use_;
}

bool MemoryStore::damage(PageKey key) {
  const std::scoped_lock lock(mutex_);
  const auto found = pages_.find(key);
  if (found == pages_.end() || found->second.bytes.empty()) return false;
  found->second.bytes.front() ^= std::byte{1};
  return true;
}

}  // namespace terrace::doubles
