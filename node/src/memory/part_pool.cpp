#include "part_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "terrace/core/assert.hpp"

namespace terrace::node {
namespace {

constexpr std::uint64_t segments_wanted = 16;
constexpr std::uint64_t segment_bytes_least = std::uint64_t{64} << 10;
constexpr std::uint64_t segment_bytes_most = std::uint64_t{1} << 30;
constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;
constexpr std::uint64_t page_bytes = 4096;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

std::uint64_t pages_of(PageSize pages) {
  return pages == PageSize::huge ? huge_page_bytes : page_bytes;
}

}  // namespace

PartPool::PartPool(const PartPoolOptions& options)
    : options_(options),
      segment_bytes_(round_up(
          std::clamp(options.bytes / segments_wanted, segment_bytes_least, segment_bytes_most),
          options.bytes < segments_wanted * huge_page_bytes ? pages_of(options.pages)
                                                            : huge_page_bytes)) {}

Status PartPool::try_out() {
  Result<std::shared_ptr<PoolSegment>> segment = make_segment({}, 1);
  if (!segment) return tl::unexpected(segment.error());
  counters_.bytes -= (*segment)->file.bytes();
  return {};
}

PooledPart* PartPool::find(const PartKey& key) {
  const auto known = parts_.find(key);
  return known == parts_.end() ? nullptr : known->second.get();
}

std::span<std::byte> PartPool::memory_of(const PooledPart& part) noexcept {
  return part.segment->mapping.bytes().subspan(part.offset, part.bytes);
}

Result<PooledPart*> PartPool::add(const PartKey& key, const std::string& tenant,
                                  std::uint64_t bytes) {
  TERRACE_ASSIGN(Place place, find_place(tenant, bytes));
  auto part = std::make_unique<PooledPart>();
  part->key = key;
  part->segment = std::move(place.segment);
  part->offset = place.offset;
  part->bytes = bytes;
  part->holders = 1;
  ++part->segment->holders;
  counters_.held_bytes += bytes;
  counters_.part_bytes += bytes;
  ++counters_.parts;
  return parts_.insert_or_assign(key, std::move(part)).first->second.get();
}

std::optional<PartPool::Place> PartPool::place_in(const Tenant& tenant, std::uint64_t bytes) {
  for (const auto& segment : tenant.segments) {
    if (const auto offset = segment->places.take(bytes)) return Place{segment, *offset};
  }
  return std::nullopt;
}

Result<PartPool::Place> PartPool::find_place(const std::string& tenant, std::uint64_t bytes) {
  Tenant& own = tenants_[tenant];
  if (auto place = place_in(own, bytes)) return *std::move(place);
  const std::uint64_t wanted = std::max(
      segment_bytes_, round_up(bytes, std::max(pages_of(options_.pages), FreePlaces::alignment)));
  if (wanted > options_.bytes) return no_room_for(bytes);
  bool may_grow = retire_for(tenant, wanted);
  while (!may_grow && wanted > segment_bytes_ && retire_idle(own)) {
    may_grow = retire_for(tenant, wanted);
  }
  if (may_grow) {
    TERRACE_ASSIGN(auto segment, make_segment(tenant, wanted));
    own.segments.push_back(segment);
    const auto offset = segment->places.take(bytes);
    return Place{std::move(segment), *offset};
  }
  while (!own.free.empty()) {
    PooledPart& victim = *own.free.front();
    const std::shared_ptr<PoolSegment> segment = victim.segment;
    erase(victim);
    ++counters_.evicted;
    if (const auto offset = segment->places.take(bytes)) return Place{segment, *offset};
  }
  return no_room_for(bytes);
}

tl::unexpected<Error> PartPool::no_room_for(std::uint64_t bytes) const {
  return fail(Errc::out_of_memory,
              "daemon.memory is {} bytes, and has no room for a part of {}: release leases",
              options_.bytes, bytes);
}

bool PartPool::retire_idle(const Tenant& tenant) {
  const auto idle = std::ranges::find_if(tenant.segments,
                                         [](const auto& segment) { return segment->holders == 0; });
  if (idle == tenant.segments.end()) return false;
  retire(std::shared_ptr<PoolSegment>(*idle));
  return true;
}

Result<std::shared_ptr<PoolSegment>> PartPool::make_segment(const std::string& tenant,
                                                            std::uint64_t bytes) {
  bytes = std::max(bytes, segment_bytes_);
  TERRACE_ASSIGN(
      MemoryFile file,
      MemoryFile::create({.name = "terrace-parts", .bytes = bytes, .pages = options_.pages}));
  TERRACE_ASSIGN(Mapping mapping, file.map());
  TERRACE_TRY(file.forbid_other_writers());
  if (options_.pages == PageSize::huge_if_free) {
    // Advice alone: without huge pages the memory is as good.
    static_cast<void>(::madvise(mapping.bytes().data(), bytes, MADV_HUGEPAGE));
  }
  if (options_.lock && ::mlock(mapping.bytes().data(), bytes) != 0) {
    return fail(Errc::out_of_memory,
                "daemon.lock_memory: {} bytes cannot be locked: raise "
                "the limit of locked memory (memlock)",
                bytes);
  }
  counters_.bytes += bytes;
  return std::make_shared<PoolSegment>(next_number_++, tenant, std::move(file), std::move(mapping));
}

bool PartPool::retire_for(const std::string& tenant, std::uint64_t bytes) {
  while (counters_.bytes + bytes > options_.bytes) {
    const std::size_t own = tenants_[tenant].segments.size();
    std::shared_ptr<PoolSegment> victim;
    std::size_t most = own;
    for (const auto& [number, other] : tenants_) {
      if (number == tenant || other.segments.size() <= most) continue;
      const auto idle = std::ranges::find_if(
          other.segments, [](const auto& segment) { return segment->holders == 0; });
      if (idle == other.segments.end()) continue;
      victim = *idle;
      most = other.segments.size();
    }
    if (victim == nullptr) return false;
    retire(victim);
  }
  return true;
}

void PartPool::retire(const std::shared_ptr<PoolSegment>& segment) {
  Tenant& owner = tenants_[segment->tenant];
  for (auto each = owner.free.begin(); each != owner.free.end();) {
    PooledPart& part = **each++;
    if (part.segment == segment) erase(part);
  }
  std::erase(owner.segments, segment);
  retired_.push_back(segment->number);
  counters_.bytes -= segment->file.bytes();
  ++counters_.segments_retired;
}

void PartPool::erase(PooledPart& part) {
  TERRACE_ASSERT(part.holders == 0);
  tenants_[part.segment->tenant].free.erase(part.place_in_list);
  part.segment->places.give_back(part.offset, part.bytes);
  counters_.part_bytes -= part.bytes;
  --counters_.parts;
  parts_.erase(PartKey(part.key));
}

void PartPool::settle(PooledPart& part, const Status& loaded) {
  part.is_ready = loaded.has_value();
  const auto waiting = std::exchange(part.waiting, {});
  for (const auto& tell : waiting) tell(loaded);
  let_go(part);
  if (!loaded) {
    TERRACE_ASSERT(part.holders == 0);
    erase(part);
  }
}

void PartPool::hold(PooledPart& part) {
  if (part.holders++ == 0) {
    tenants_[part.segment->tenant].free.erase(part.place_in_list);
    ++part.segment->holders;
    counters_.held_bytes += part.bytes;
  }
}

void PartPool::let_go(PooledPart& part) {
  TERRACE_ASSERT(part.holders > 0);
  if (--part.holders > 0) return;
  std::list<PooledPart*>& free = tenants_[part.segment->tenant].free;
  part.place_in_list = free.insert(free.end(), &part);
  --part.segment->holders;
  counters_.held_bytes -= part.bytes;
}

std::vector<std::uint32_t> PartPool::take_retired() { return std::exchange(retired_, {}); }

}  // namespace terrace::node
