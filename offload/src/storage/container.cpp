#include "container.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t block = StorageFile::alignment;
constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr Duration patience = std::chrono::seconds(60);

FileTransfer write_of(std::uint64_t offset, std::span<std::byte> bytes) {
  return {.direction = FileTransfer::Direction::write,
          .data = bytes.data(),
          .bytes = bytes.size(),
          .offset = offset};
}

/// Has the queue, which is idle, carry out one transfer, and waits for it.
Status run(const StorageFile& file, FileQueue& queue, const FileTransfer& transfer) {
  TERRACE_TRY(queue.submit({&transfer, 1}));
  const Deadline deadline(patience);
  FinishedTransfer finished;
  while (deadline.left() > Duration{}) {
    if (queue.reap({&finished, 1}, deadline.left()) == 1) return finished.status;
  }
  return fail(Errc::io_error, "{}: does not answer", file.path());
}

/// Shows each block of a part, in order.
Status read_blocks(const StorageFile& file, FileQueue& queue, const FilePart& part,
                   const std::function<void(std::uint64_t, std::span<const std::byte>)>& show) {
  const AlignedBytes memory(std::min<std::uint64_t>(piece_bytes, part.bytes));
  for (std::uint64_t at = 0; at < part.bytes; at += piece_bytes) {
    const auto piece = memory.span().first(std::min<std::uint64_t>(piece_bytes, part.bytes - at));
    TERRACE_TRY(run(file, queue,
                    {.direction = FileTransfer::Direction::read,
                     .data = piece.data(),
                     .bytes = piece.size(),
                     .offset = part.begin + at}));
    for (std::size_t in = 0; in < piece.size(); in += block) {
      show((at + in) / block, piece.subspan(in, block));
    }
  }
  return {};
}

struct FoundSuperblock {
  std::optional<Superblock> newest;  ///< nothing where the file is empty
  std::size_t copies = 0;            ///< of that one
};

Result<FoundSuperblock> find_superblock(const StorageFile& file, FileQueue& queue) {
  FoundSuperblock best;
  auto& [newest, copies] = best;
  bool is_empty = true;
  Status readable;
  const auto look = [&](std::uint64_t, std::span<const std::byte> bytes) {
    is_empty = is_empty && std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{}; });
    auto found = read_superblock(bytes, file.path());
    if (!found) {
      readable = tl::unexpected(found.error());
    } else if (*found && (!newest || (*found)->generation > newest->generation)) {
      newest = std::move(*found);
      copies = 1;
    } else if (*found && (*found)->generation == newest->generation) {
      ++copies;
    }
  };
  TERRACE_TRY(read_blocks(file, queue, {0, superblock_copies * superblock_bytes}, look));
  if (!newest) TERRACE_TRY(readable);
  if (newest || is_empty) return best;
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
  if (found.file_bytes > file.bytes()) {
    return fail(Errc::io_error, "{}: has {} bytes of the {} it was made with; name another file",
                file.path(), file.bytes(), found.file_bytes);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Container>> Container::open(const StorageFile& file, FileQueue& queue,
                                                   const ContainerOptions& options) {
  if (file.bytes() < superblock_copies * superblock_bytes) {
    return fail(Errc::invalid_argument, "{}: {} are too few for a container", file.path(),
                format_size(file.bytes()));
  }
  if (options.contents.size() > Superblock::contents_max) {
    return fail(Errc::invalid_argument, "{}: its contents have a name of {} bytes; at most {}",
                file.path(), options.contents.size(), Superblock::contents_max);
  }
  TERRACE_ASSIGN(const FoundSuperblock best, find_superblock(file, queue));
  const auto& found = best.newest;
  if (found) TERRACE_TRY(check(file, *found, options));
  const Superblock superblock = found.value_or(Superblock{
      .pages_max = options.pages_max, .file_bytes = file.bytes(), .contents = options.contents});
  TERRACE_ASSIGN(const ContainerLayout layout,
                 ContainerLayout::divide(superblock.file_bytes, superblock.pages_max, file.path()));
  std::unique_ptr<Container> container(new Container(layout, superblock));
  // A copy that is lost is written anew with the next snapshot.
  container->asks_for_snapshot_ = best.copies < superblock_copies;
  TERRACE_TRY(found ? container->read(file, queue) : container->write_all(file, queue));
  return container;
}

Container::Container(const ContainerLayout& layout, const Superblock& superblock)
    : layout_(layout),
      superblock_(superblock),
      directory_(layout.pages, superblock.pages_max),
      journal_block_(record_block_bytes),
      snapshot_piece_(piece_bytes) {}

/// Makes the file a container without pages.
Status Container::write_all(const StorageFile& file, FileQueue& queue) {
  // A device may hold blocks of an older journal: numbers would begin among them.
  const AlignedBytes zeros(std::min<std::uint64_t>(piece_bytes, layout_.journal.bytes));
  for (std::uint64_t at = 0; at < layout_.journal.bytes; at += piece_bytes) {
    const auto piece =
        zeros.span().first(std::min<std::uint64_t>(piece_bytes, layout_.journal.bytes - at));
    TERRACE_TRY(run(file, queue, write_of(layout_.journal.begin + at, piece)));
  }
  directory_.find_room();
  while (const auto transfer = write_snapshot()) {
    TERRACE_TRY(run(file, queue, *transfer));
    snapshot_written();
  }
  return {};
}

Status Container::read(const StorageFile& file, FileQueue& queue) {
  TERRACE_TRY(read_snapshot(file, queue));
  TERRACE_TRY(read_journal(file, queue));
  directory_.find_room();
  return {};
}

Status Container::read_snapshot(const StorageFile& file, FileQueue& queue) {
  const std::uint64_t count = divide_up(superblock_.snapshot_records, records_of_block);
  FilePart part = snapshot_part(superblock_.generation);
  if (count > part.blocks()) {
    return fail(Errc::io_error, "{}: its superblock cannot be right; name another file",
                file.path());
  }
  part.bytes = count * block;
  return read_blocks(file, queue, part, [&](std::uint64_t at, std::span<const std::byte> bytes) {
    const auto found = read_records(bytes);
    const BlockName name{RecordPurpose::snapshot, superblock_.generation, at};
    // Of a damaged one the pages are lost, and no others.
    if (!found || found->name != name) return;
    for (const PageRecord& record : found->records) directory_.apply(record);
  });
}

Status Container::read_journal(const StorageFile& file, FileQueue& queue) {
  const std::uint64_t blocks = layout_.journal.blocks();
  std::vector<std::optional<RecordBlock>> ring(blocks);
  std::uint64_t newest = superblock_.first_number;  // one behind the last that was written
  TERRACE_TRY(read_blocks(file, queue, layout_.journal,
                          [&](std::uint64_t at, std::span<const std::byte> bytes) {
                            auto found = read_records(bytes);
                            if (!found || found->name.purpose != RecordPurpose::journal) return;
                            if (found->name.number < superblock_.first_number) return;
                            newest = std::max(newest, found->name.number + 1);
                            ring[at] = std::move(*found);
                          }));
  next_number_ = superblock_.first_number;
  while (next_number_ - superblock_.first_number < blocks) {
    const auto& next = ring[next_number_ % blocks];
    if (!next || next->name.number != next_number_) break;
    for (const PageRecord& record : next->records) directory_.apply(record);
    ++next_number_;
  }
  // Behind a damaged block there are whole ones, which must never follow a new one in its place.
  if (newest > next_number_) {
    next_number_ = newest;
    asks_for_snapshot_ = true;
  }
  return {};
}

std::uint64_t Container::blocks_in_use() const noexcept {
  return next_number_ - superblock_.first_number;
}

const FilePart& Container::snapshot_part(std::uint64_t generation) const noexcept {
  return layout_.snapshots[generation % layout_.snapshots.size()];
}

bool Container::takes_records() const noexcept {
  // A gap behind a damaged block may be wider than the ring, until the snapshot is there.
  return under_way_.empty() && !asks_for_snapshot_ && blocks_in_use() < layout_.journal.blocks();
}

FileTransfer Container::write(std::span<const PageRecord> records) {
  TERRACE_ASSERT(takes_records() && !records.empty());
  under_way_.assign(records.begin(), records.end());
  write_records(journal_block_.span(), {RecordPurpose::journal, 0, next_number_}, records);
  const std::uint64_t place = next_number_ % layout_.journal.blocks();
  return write_of(layout_.journal.begin + place * block, journal_block_.span());
}

void Container::records_written() {
  ++next_number_;
  for (const PageRecord& record : std::exchange(under_way_, {})) {
    if (const auto unused = directory_.apply(record)) directory_.give_back(*unused);
  }
}

std::optional<FileTransfer> Container::write_snapshot() {
  if (!snapshot_) {
    const bool is_due = asks_for_snapshot_ || blocks_in_use() > layout_.journal.blocks() / 2;
    // Records on their way are in no directory yet.
    if (!is_due || !under_way_.empty()) return std::nullopt;
    snapshot_ = Snapshot{.records = directory_.records(), .first_number = next_number_};
  }
  if (snapshot_->is_under_way) return std::nullopt;
  snapshot_->is_under_way = true;
  const bool is_whole = snapshot_->blocks_written * records_of_block >= snapshot_->records.size();
  return is_whole ? next_superblock() : next_of_snapshot();
}

FileTransfer Container::next_of_snapshot() {
  const std::uint64_t generation = superblock_.generation + 1;
  const auto piece = snapshot_piece_.span();
  const std::span<const PageRecord> all = snapshot_->records;
  std::uint64_t blocks = 0;
  for (; blocks < piece.size() / block; ++blocks) {
    const std::uint64_t number = snapshot_->blocks_written + blocks;
    const std::size_t from = number * records_of_block;
    if (from >= all.size()) break;
    const auto records = all.subspan(from, std::min(records_of_block, all.size() - from));
    write_records(piece.subspan(blocks * block, block),
                  {RecordPurpose::snapshot, generation, number}, records);
  }
  snapshot_piece_blocks_ = blocks;
  const std::uint64_t offset = snapshot_part(generation).begin + snapshot_->blocks_written * block;
  return write_of(offset, piece.first(blocks * block));
}

FileTransfer Container::next_superblock() {
  Superblock next = superblock_;
  ++next.generation;
  next.snapshot_records = snapshot_->records.size();
  next.first_number = snapshot_->first_number;
  const auto bytes = snapshot_piece_.span().first(superblock_bytes);
  snapshot_piece_blocks_ = 0;
  write_superblock(bytes, next);
  return write_of(snapshot_->superblocks_written * superblock_bytes, bytes);
}

void Container::snapshot_written() {
  snapshot_->is_under_way = false;
  snapshot_->blocks_written += snapshot_piece_blocks_;
  if (snapshot_piece_blocks_ > 0 || ++snapshot_->superblocks_written < superblock_copies) return;
  ++superblock_.generation;
  superblock_.snapshot_records = snapshot_->records.size();
  superblock_.first_number = snapshot_->first_number;
  asks_for_snapshot_ = false;
  snapshot_.reset();
}

}  // namespace terrace::offload
