// Blocks: how they are made, opened and reported on.
#include "terrace/tiers/directory.hpp"

#include <xxhash.h>

#include <cstring>
#include <new>

#include "directory_block.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::tiers {
namespace {

constexpr std::uint64_t block_magic = 0x4b4c4252'4944'5254;  // "TRDIRBLK", little-endian
constexpr std::uint64_t block_version = 2;

std::uint64_t checksum_of(const Header& header) noexcept {
  return XXH3_64bits(&header, offsetof(Header, checksum));
}

template <typename Record>
std::span<Record> part_of(std::span<std::byte> block, std::uint64_t offset, std::uint64_t count) {
  return {reinterpret_cast<Record*>(block.data() + offset), count};
}

Status check_memory(std::span<const std::byte> block, std::uint64_t bytes) {
  if (block.size() < bytes ||
      reinterpret_cast<std::uintptr_t>(block.data()) % BlockLayout::alignment != 0) {
    return fail(Errc::invalid_argument,
                "a directory needs {} bytes from a multiple of {} on; the block has {}", bytes,
                BlockLayout::alignment, block.size());
  }
  return {};
}

std::size_t checked_number_of(Tier tier) noexcept {
  TERRACE_ASSERT(number_of(tier) < stored_tier_count);
  return number_of(tier);
}

/// Checks what tells where the parts of a block lie.
Status check_header(std::span<const std::byte> block) {
  if (!check_memory(block, sizeof(Header))) {
    return fail(Errc::corrupt, "a block of {} bytes holds no directory", block.size());
  }
  const auto& header = *reinterpret_cast<const Header*>(block.data());
  if (header.magic != block_magic) return fail(Errc::corrupt, "the block holds no directory");
  if (header.version != block_version) {
    return fail(Errc::unsupported,
                "the directory has version {}, this program opens version {}: make a new one",
                header.version, block_version);
  }
  const auto options = checked(header.options);
  if (header.checksum != checksum_of(header) || !options ||
      BlockLayout::of(*options).bytes != header.block_bytes || header.block_bytes > block.size()) {
    return fail(Errc::corrupt, "the directory's header is damaged: make a new directory");
  }
  if (header.changes % 2 != 0) {
    return fail(Errc::corrupt, "a process ended amid a change of the directory: make a new one");
  }
  return {};
}

}  // namespace

Directory::Block::Block(std::span<std::byte> bytes)
    : Block(bytes, BlockLayout::of(reinterpret_cast<const Header*>(bytes.data())->options)) {}

Directory::Block::Block(std::span<std::byte> bytes, const BlockLayout& layout)
    : header(*reinterpret_cast<Header*>(bytes.data())),
      tenants(part_of<TenantRecord>(bytes, layout.tenants, header.options.tenants_max)),
      chunks({part_of<ChunkRecord>(bytes, layout.chunks, header.options.chunks_max + 1),
              header.chunks},
             part_of<RecordNumber>(bytes, layout.buckets, header.options.chunks_max),
             header.options.seed),
      copies(
          {part_of<CopyRecord>(bytes, layout.copies, header.options.copies_max + 1), header.copies},
          header, tenants, chunks),
      leases({part_of<LeaseRecord>(bytes, layout.leases, header.options.leases_max + 1),
              header.leases},
             part_of<RecordNumber>(bytes, layout.heap, header.options.leases_max)),
      // Another seed, so that chunks of one bucket are not together here, too.
      gone(part_of<std::uint32_t>(bytes, layout.gone, gone_slots(header.options)),
           ~header.options.seed) {}

Directory::Directory(std::unique_ptr<Block> block) : block_(std::move(block)) {}
Directory::Directory(Directory&&) noexcept = default;
Directory& Directory::operator=(Directory&&) noexcept = default;
Directory::~Directory() = default;

Result<std::uint64_t> Directory::block_bytes(const DirectoryOptions& options) {
  TERRACE_ASSIGN(const DirectoryOptions complete, checked(options));
  return BlockLayout::of(complete).bytes;
}

Result<Directory> Directory::create(std::span<std::byte> block, const DirectoryOptions& options) {
  TERRACE_ASSIGN(const DirectoryOptions complete, checked(options));
  const BlockLayout layout = BlockLayout::of(complete);
  TERRACE_TRY(check_memory(block, layout.bytes));
  std::memset(block.data(), 0, layout.bytes);
  auto& header = *new (block.data()) Header{};
  header.magic = block_magic;
  header.version = block_version;
  header.options = complete;
  header.block_bytes = layout.bytes;
  header.limits.fill(no_limit);
  header.checksum = checksum_of(header);
  Directory directory(std::make_unique<Block>(block));
  for (TenantRecord& tenant : directory.block_->tenants) tenant.quotas.fill(no_limit);
  return directory;
}

Result<Directory> Directory::open(std::span<std::byte> block) {
  TERRACE_TRY(check_header(block));
  Directory directory(std::make_unique<Block>(block));
  TERRACE_TRY(directory.block_->audit());
  return directory;
}

void Directory::set_limit(Tier tier, std::uint64_t bytes) noexcept {
  const Block::Change change(block_->header);
  block_->header.limits[checked_number_of(tier)] = bytes;
}

void Directory::set_quota(TenantId tenant, Tier tier, std::uint64_t bytes) noexcept {
  TERRACE_ASSERT(block_->has(tenant));
  const Block::Change change(block_->header);
  block_->tenants[index(tenant)].quotas[checked_number_of(tier)] = bytes;
}

TierGauges Directory::gauges(Tier tier) const noexcept {
  return block_->header.gauges[checked_number_of(tier)];
}

TierGauges Directory::gauges(TenantId tenant, Tier tier) const noexcept {
  TERRACE_ASSERT(block_->has(tenant));
  return block_->tenants[index(tenant)].gauges[checked_number_of(tier)];
}

LookUpCounters Directory::counters() const noexcept {
  LookUpCounters sum;
  for (const TenantRecord& tenant : block_->tenants) {
    sum.look_ups += tenant.counters.look_ups;
    for (std::size_t i = 0; i < sum.ended.size(); ++i) sum.ended[i] += tenant.counters.ended[i];
  }
  return sum;
}

LookUpCounters Directory::counters(TenantId tenant) const noexcept {
  TERRACE_ASSERT(block_->has(tenant));
  return block_->tenants[index(tenant)].counters;
}

DirectoryUsage Directory::usage() const noexcept {
  return {.chunks = block_->header.chunks.used,
          .copies = block_->header.copies.used,
          .leases = block_->header.leases.used};
}

}  // namespace terrace::tiers
