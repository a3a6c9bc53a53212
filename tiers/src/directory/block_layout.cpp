#include "block_layout.hpp"

#include "gone_table.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::tiers {
namespace {

constexpr std::uint64_t records_max = std::uint64_t{1} << 31;
constexpr std::uint64_t leases_most = std::uint64_t{1} << 24;
constexpr std::uint32_t tenants_most = 4096;

}  // namespace

Result<DirectoryOptions> checked(DirectoryOptions options) {
  if (options.chunks_max == 0 || options.chunks_max > records_max) {
    return fail(Errc::invalid_argument, "a directory of {} chunks; choose 1 to {}",
                options.chunks_max, records_max);
  }
  if (options.copies_max == 0) options.copies_max = options.chunks_max + options.chunks_max / 8;
  if (options.copies_max < options.chunks_max || options.copies_max > 2 * records_max - 2) {
    return fail(Errc::invalid_argument, "a directory of {} chunks with {} copies; choose {} to {}",
                options.chunks_max, options.copies_max, options.chunks_max, 2 * records_max - 2);
  }
  if (options.leases_max == 0 || options.leases_max > leases_most) {
    return fail(Errc::invalid_argument, "a directory of {} leases; choose 1 to {}",
                options.leases_max, leases_most);
  }
  if (options.tenants_max == 0 || options.tenants_max > tenants_most) {
    return fail(Errc::invalid_argument, "a directory of {} tenants; choose 1 to {}",
                options.tenants_max, tenants_most);
  }
  return options;
}

std::uint64_t gone_slots(const DirectoryOptions& options) noexcept {
  return divide_up(options.chunks_max, GoneTable::bucket_slots) * GoneTable::bucket_slots;
}

BlockLayout BlockLayout::of(const DirectoryOptions& options) noexcept {
  BlockLayout layout;
  std::uint64_t end = sizeof(Header);
  const auto append = [&](std::uint64_t count, std::uint64_t record_bytes) {
    const std::uint64_t begin = align_up(end, alignment);
    end = begin + count * record_bytes;
    return begin;
  };
  // Record 0 of each kind that is numbered from 1 is there, and not used.
  layout.tenants = append(options.tenants_max, sizeof(TenantRecord));
  layout.buckets = append(options.chunks_max, sizeof(RecordNumber));
  layout.chunks = append(options.chunks_max + 1, sizeof(ChunkRecord));
  layout.copies = append(options.copies_max + 1, sizeof(CopyRecord));
  layout.leases = append(options.leases_max + 1, sizeof(LeaseRecord));
  layout.heap = append(options.leases_max, sizeof(RecordNumber));
  layout.gone = append(gone_slots(options), sizeof(std::uint32_t));
  layout.bytes = append(0, 1);
  return layout;
}

}  // namespace terrace::tiers
