#include "container.hpp"

#include <algorithm>
#include <utility>

#include "boot_mark.hpp"
#include "terrace/core/assert.hpp"
#include "waited_transfers.hpp"

namespace terrace::offload {

Container::Container(const ContainerLayout& layout, const Superblock& superblock)
    : layout_(layout),
      superblock_(superblock),
      directory_(layout.pages, {superblock.pages_max, superblock.part_bytes}),
      boot_mark_(boot_mark()),
      journal_block_(journal_copies * record_block_bytes),
      snapshot_piece_(piece_bytes) {}

/// Makes the file a container without pages.
Status Container::write_all(const StorageFile& file, FileQueue& queue) {
  // A device may hold blocks of an older journal: numbers would begin among them.
  const TransferBytes zeros(queue, std::min<std::uint64_t>(piece_bytes, layout_.journal.bytes));
  for (std::uint64_t at = 0; at < layout_.journal.bytes; at += piece_bytes) {
    const auto piece =
        zeros.span().first(std::min<std::uint64_t>(piece_bytes, layout_.journal.bytes - at));
    TERRACE_TRY(run(file, queue, write_of(layout_.journal.begin + at, piece)));
  }
  directory_.find_room();
  asks_for_snapshot_ = true;
  while (const auto transfer = write_snapshot()) {
    TERRACE_TRY(run(file, queue, *transfer));
    snapshot_written();
  }
  return {};
}

std::uint64_t Container::ring_blocks() const noexcept {
  return layout_.journal.blocks() / journal_copies;
}

std::uint64_t Container::blocks_in_use() const noexcept {
  return next_number_ - superblock_.first_number;
}

const FilePart& Container::snapshot_part(std::uint64_t generation) const noexcept {
  return layout_.snapshots[generation % layout_.snapshots.size()];
}

bool Container::takes_records() const noexcept {
  // A gap after a damaged block may be wider than the ring, until the snapshot is there.
  return under_way_.empty() && !asks_for_snapshot_ && blocks_in_use() < ring_blocks();
}

FileTransfer Container::write(std::span<const PageRecord> records) {
  TERRACE_ASSERT(takes_records() && !records.empty());
  under_way_.assign(records.begin(), records.end());
  return write_pair(next_number_, records, journal_block_.span());
}

FileTransfer Container::write_pair(std::uint64_t number, std::span<const PageRecord> records,
                                   std::span<std::byte> bytes) const {
  const BlockName name{RecordPurpose::journal, boot_mark_, number};
  for (std::size_t at = 0; at < bytes.size(); at += disk_block) {
    write_records(bytes.subspan(at, disk_block), name, records);
  }
  const std::uint64_t place = number % ring_blocks();
  return write_of(layout_.journal.begin + place * bytes.size(), bytes);
}

void Container::records_written() {
  ++next_number_;
  for (const PageRecord& record : std::exchange(under_way_, {})) {
    if (const auto unused = directory_.apply(record)) directory_.give_back(*unused);
  }
}

std::optional<FileTransfer> Container::write_snapshot() {
  if (!snapshot_) {
    const bool is_due = asks_for_snapshot_ || blocks_in_use() > ring_blocks() / 2;
    // Records on their way are in no directory yet.
    if (!is_due || !under_way_.empty()) return std::nullopt;
    snapshot_ = begin_snapshot();
  }
  if (snapshot_->is_under_way) return std::nullopt;
  snapshot_->is_under_way = true;
  if (!snapshot_->is_whole()) return next_of_snapshot();
  // Without a flush, the machine's end could leave a superblock without the snapshot that it names.
  if (!snapshot_->is_flushed) return FileTransfer{.direction = FileTransfer::Direction::flush};
  return next_superblock();
}

Container::Snapshot Container::begin_snapshot() const {
  Snapshot begun{.records = directory_.records(), .superblock = superblock_};
  ++begun.superblock.generation;
  begun.superblock.snapshot_records = begun.records.size();
  begun.superblock.snapshot_blocks = 0;
  for (std::span<const PageRecord> left = begun.records; !left.empty();) {
    left = left.subspan(count_of_block(left));
    ++begun.superblock.snapshot_blocks;
  }
  begun.superblock.first_number = next_number_;
  return begun;
}

FileTransfer Container::next_of_snapshot() {
  const std::uint64_t generation = snapshot_->superblock.generation;
  const auto piece = snapshot_piece_.span();
  std::uint64_t blocks = 0;
  for (; blocks < piece.size() / disk_block; ++blocks) {
    const auto left =
        std::span<const PageRecord>(snapshot_->records).subspan(snapshot_->records_taken);
    if (left.empty()) break;
    const auto records = left.first(count_of_block(left));
    write_records(piece.subspan(blocks * disk_block, disk_block),
                  {RecordPurpose::snapshot, generation, snapshot_->blocks_written + blocks},
                  records);
    snapshot_->records_taken += records.size();
  }
  snapshot_->blocks_under_way = blocks;
  const std::uint64_t offset =
      snapshot_part(generation).begin + snapshot_->blocks_written * disk_block;
  return write_of(offset, piece.first(blocks * disk_block));
}

FileTransfer Container::next_superblock() {
  const auto bytes = snapshot_piece_.span().first(superblock_bytes);
  write_superblock(bytes, snapshot_->superblock);
  return write_of(snapshot_->superblocks_written * superblock_bytes, bytes);
}

void Container::snapshot_written() {
  snapshot_->is_under_way = false;
  if (!snapshot_->is_whole()) {
    snapshot_->blocks_written += snapshot_->blocks_under_way;
    return;
  }
  if (!std::exchange(snapshot_->is_flushed, !snapshot_->is_flushed)) return;
  if (++snapshot_->superblocks_written < superblock_copies) return;
  superblock_ = snapshot_->superblock;
  asks_for_snapshot_ = false;
  snapshot_.reset();
}

}  // namespace terrace::offload
