// How a container is opened: what its blocks say, and what of them is damaged.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "container.hpp"
#include "terrace/core/bytes.hpp"
#include "waited_transfers.hpp"

namespace terrace::offload {
namespace {

constexpr std::uint64_t beginning_bytes = std::uint64_t{1} << 20;

bool are_zeros(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{}; });
}

/// Whether the beginning of a file was never written. Files of other programs may begin with some
/// zeros.
Result<bool> begins_with_zeros(const StorageFile& file, FileQueue& queue) {
  Result<bool> all = true;
  const FilePart part{
      0, std::min<std::uint64_t>(beginning_bytes, file.bytes() / disk_block * disk_block)};
  TERRACE_TRY(read_blocks(file, queue, part, [&](std::uint64_t, const ReadBlock& bytes) {
    if (!bytes) {
      all = tl::unexpected(bytes.error());
    } else if (all && !are_zeros(*bytes)) {
      all = false;
    }
  }));
  return all;
}

struct FoundSuperblock {
  std::optional<Superblock> newest;                ///< nothing where the file is empty
  std::array<bool, superblock_copies> is_it = {};  ///< by copy
};

Result<FoundSuperblock> find_superblock(const StorageFile& file, FileQueue& queue) {
  FoundSuperblock best;
  auto& [newest, is_it] = best;
  Status readable;
  const auto look = [&](std::uint64_t copy, const ReadBlock& bytes) {
    auto found = bytes.and_then(
        [&](std::span<const std::byte> whole) { return read_superblock(whole, file.path()); });
    if (!found) {
      readable = tl::unexpected(found.error());
    } else if (*found && (!newest || (*found)->generation > newest->generation)) {
      newest = std::move(*found);
      is_it = {};
      is_it[copy] = true;
    } else if (*found && (*found)->generation == newest->generation) {
      is_it[copy] = true;
    }
  };
  TERRACE_TRY(read_blocks(file, queue, {0, superblock_copies * superblock_bytes}, look));
  if (newest) return best;
  TERRACE_TRY(readable);
  TERRACE_ASSIGN(const bool is_empty, begins_with_zeros(file, queue));
  if (is_empty) return best;
  return fail(
      Errc::io_error,
      "{}: is no container of Terrace, or a damaged one; it was left as it is. Name another "
      "file, or remove it",
      file.path());
}

Status check(const StorageFile& file, const Superblock& found, const ContainerOptions& options) {
  if (found.contents != options.contents) {
    return fail(Errc::invalid_argument,
                "{}: holds pages of {}, not of {}; name another file, or remove it", file.path(),
                found.contents, options.contents);
  }
  if (!std::has_single_bit(found.part_bytes) || found.part_bytes < disk_block) {
    return fail(Errc::io_error, "{}: its superblock cannot be right; name another file",
                file.path());
  }
  if (found.file_bytes > file.bytes()) {
    return fail(Errc::io_error, "{}: has {} bytes of the {} it was made with; name another file",
                file.path(), file.bytes(), found.file_bytes);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Container>> Container::open(StorageFile& file, FileQueue& queue,
                                                   const ContainerOptions& options) {
  if (file.bytes() < superblock_copies * superblock_bytes) {
    return fail(Errc::invalid_argument, "{}: {} are too few for a container", file.path(),
                format_size(file.bytes()));
  }
  if (options.contents.size() > Superblock::contents_max) {
    return fail(Errc::invalid_argument, "{}: its contents have a name of {} bytes; at most {}",
                file.path(), options.contents.size(), Superblock::contents_max);
  }
  TERRACE_ASSIGN(const FoundSuperblock found, find_superblock(file, queue));
  if (!found.newest) return create(file, queue, options);
  TERRACE_TRY(check(file, *found.newest, options));
  TERRACE_ASSIGN(const ContainerLayout layout, ContainerLayout::divide(*found.newest, file.path()));
  std::unique_ptr<Container> container(new Container(layout, *found.newest));
  TERRACE_TRY(container->read(file, queue));
  container->damage_.mended = container->mend(file, queue, found.is_it);
  if (queue.in_flight() > 0) return tl::unexpected(container->damage_.mended.error());
  return container;
}

Result<std::unique_ptr<Container>> Container::create(StorageFile& file, FileQueue& queue,
                                                     const ContainerOptions& options) {
  // A file of zeros that is too short is of a process that ended while it made the file.
  if (options.file_bytes > file.bytes()) TERRACE_TRY(file.grow(options.file_bytes));
  const Superblock superblock{.pages_max = options.pages_max,
                              .part_bytes = options.part_bytes,
                              .file_bytes = file.bytes(),
                              .contents = options.contents};
  TERRACE_ASSIGN(const ContainerLayout layout, ContainerLayout::divide(superblock, file.path()));
  std::unique_ptr<Container> container(new Container(layout, superblock));
  container->is_new_ = true;
  const Status written = container->write_all(file, queue);
  if (written) return container;
  // A disk that has not answered may still read its memory.
  if (queue.in_flight() > 0) static_cast<void>(container.release());
  return tl::unexpected(written.error());
}

Status Container::read(const StorageFile& file, FileQueue& queue) {
  TERRACE_TRY(read_snapshot(file, queue));
  TERRACE_TRY(read_journal(file, queue));
  damage_.lost += directory_.find_room();
  // The next one to open the file finds nothing damaged, and loses no more.
  if (damage_.lost > 0) asks_for_snapshot_ = true;
  return {};
}

Status Container::read_snapshot(const StorageFile& file, FileQueue& queue) {
  FilePart part = snapshot_part(superblock_.generation);
  if (superblock_.snapshot_blocks > part.blocks()) {
    return fail(Errc::io_error, "{}: its superblock cannot be right; name another file",
                file.path());
  }
  part.bytes = superblock_.snapshot_blocks * disk_block;
  std::uint64_t left = superblock_.snapshot_records;  // in damaged blocks, at the end
  TERRACE_TRY(read_blocks(file, queue, part, [&](std::uint64_t at, const ReadBlock& bytes) {
    const auto found = bytes ? read_records(*bytes) : std::nullopt;
    const BlockName name{RecordPurpose::snapshot, superblock_.generation, at};
    if (!found || found->name != name) {
      ++damage_.blocks;
      return;
    }
    for (const PageRecord& record : found->records) directory_.apply(record);
    left -= std::min<std::uint64_t>(left, found->records.size());
  }));
  damage_.lost += left;
  return {};
}

Result<std::vector<Container::Pair>> Container::read_ring(const StorageFile& file,
                                                          FileQueue& queue) {
  const std::uint64_t first = superblock_.first_number;
  std::vector<Pair> ring(ring_blocks());
  const auto look = [&](std::uint64_t at, const ReadBlock& bytes) {
    if (!bytes) return;
    Pair& pair = ring[at / journal_copies];
    auto found = read_records(*bytes);
    if (!found) {
      pair.has_older = pair.has_older || are_zeros(*bytes);
      return;
    }
    // A block at the place of another pair is no copy of that pair, whatever it contains.
    const auto [purpose, boot, number] = found->name;
    if (purpose != RecordPurpose::journal || number % ring.size() != at / journal_copies) return;
    if (number < first) {
      pair.has_older = true;
    } else if (number - first < ring.size()) {
      pair.records = std::move(*found);
      ++pair.copies;
    }
  };
  TERRACE_TRY(read_blocks(file, queue, layout_.journal, look));
  return ring;
}

Status Container::read_journal(const StorageFile& file, FileQueue& queue) {
  TERRACE_ASSIGN(std::vector<Pair> ring, read_ring(file, queue));
  std::uint64_t newest = superblock_.first_number;  // one after the last that was written
  bool same_boot = true;                            // as when that one was
  for (const Pair& pair : ring) {
    if (!pair.records || pair.records->name.number < newest) continue;
    newest = pair.records->name.number + 1;
    same_boot = pair.records->name.generation == boot_mark_;
  }
  next_number_ = superblock_.first_number;
  while (blocks_in_use() < ring.size()) {
    Pair& next = ring[next_number_ % ring.size()];
    // The machine's end alone has one arrive before another that was written earlier.
    const bool may_be_late = next_number_ >= newest || !same_boot;
    if (!next.records && next.has_older && may_be_late) break;
    take_over(std::move(next));
  }
  if (next_number_ < newest) pass_over(std::move(ring), newest);
  return {};
}

/// Takes over the pair that is next. Where both copies are lost, the pages that they changed are
/// not known: no page recorded before is known to be the newest.
void Container::take_over(Pair pair) {
  damage_.blocks += journal_copies - pair.copies;
  if (!pair.records) {
    ++damage_.lost;  // one page that it changed, or more
    pair.records = RecordBlock{.name = {RecordPurpose::journal, boot_mark_, next_number_},
                               .records = {{.voids_all = true}}};
  }
  for (const PageRecord& record : pair.records->records) {
    if (record.voids_all) {
      damage_.lost += directory_.clear();
    } else {
      directory_.apply(record);
    }
  }
  if (pair.copies < journal_copies) to_mend_.push_back(std::move(*pair.records));
  ++next_number_;
}

/// Skips the pairs after one that never reached the disk, as can happen if the machine itself ends.
/// New pairs must never be followed by the skipped ones.
void Container::pass_over(std::vector<Pair> ring, std::uint64_t newest) {
  for (; next_number_ < newest; ++next_number_) {
    const auto& records = ring[next_number_ % ring.size()].records;
    if (records) damage_.lost += records->records.size();
  }
  asks_for_snapshot_ = true;
}

/// Writes missing second copies again, before any other write: a snapshot overwrites one
/// superblock, and may be the last write of this process.
Status Container::mend(const StorageFile& file, FileQueue& queue,
                       const std::array<bool, superblock_copies>& superblocks) {
  damage_.blocks += static_cast<std::uint64_t>(std::ranges::count(superblocks, false));
  for (std::size_t copy = 0; copy < superblock_copies; ++copy) {
    if (superblocks[copy]) continue;
    const TransferBytes memory(queue, superblock_bytes);
    write_superblock(memory.span(), superblock_);
    TERRACE_TRY(run(file, queue, write_of(copy * superblock_bytes, memory.span())));
  }
  for (const RecordBlock& pair : std::exchange(to_mend_, {})) {
    const TransferBytes memory(queue, journal_copies * disk_block);
    TERRACE_TRY(run(file, queue, write_pair(pair.name.number, pair.records, memory.span())));
  }
  return {};
}

}  // namespace terrace::offload
