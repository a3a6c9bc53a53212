#include "container.hpp"

#include <algorithm>
#include <array>
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

/// Memory of transfers that are waited for: one that has not ended keeps it for ever.
class Blocks {
 public:
  Blocks(const FileQueue& queue, std::size_t bytes) : queue_(queue), memory_(bytes) {}
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  ~Blocks() {
    if (queue_.in_flight() > 0) memory_.abandon();
  }
  [[nodiscard]] std::span<std::byte> span() const noexcept { return memory_.span(); }

 private:
  const FileQueue& queue_;
  AlignedBytes memory_;
};

/// Shows each block of a part, in order.
Status read_blocks(const StorageFile& file, FileQueue& queue, const FilePart& part,
                   const std::function<void(std::uint64_t, std::span<const std::byte>)>& show) {
  const Blocks memory(queue, std::min<std::uint64_t>(piece_bytes, part.bytes));
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

/// Whether nobody has written to the beginning of a file. Others' files may begin with some zeros.
Result<bool> begins_with_zeros(const StorageFile& file, FileQueue& queue) {
  bool are_zeros = true;
  const FilePart part{0, std::min<std::uint64_t>(piece_bytes, file.bytes() / block * block)};
  TERRACE_TRY(read_blocks(file, queue, part, [&](std::uint64_t, std::span<const std::byte> bytes) {
    are_zeros =
        are_zeros && std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{}; });
  }));
  return are_zeros;
}

struct FoundSuperblock {
  std::optional<Superblock> newest;                ///< nothing where the file is empty
  std::array<bool, superblock_copies> is_it = {};  ///< by copy
};

Result<FoundSuperblock> find_superblock(const StorageFile& file, FileQueue& queue) {
  FoundSuperblock best;
  auto& [newest, is_it] = best;
  Status readable;
  const auto look = [&](std::uint64_t copy, std::span<const std::byte> bytes) {
    auto found = read_superblock(bytes, file.path());
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
  if (!newest) TERRACE_TRY(readable);
  if (newest) return best;
  TERRACE_ASSIGN(const bool is_empty, begins_with_zeros(file, queue));
  if (is_empty) return best;
  return fail(
      Errc::io_error,
      "{}: is no container of Terrace, or a damaged one; it was left as it is. Name another "
      "file, or remove it",
      file.path());
}

/// Writes the superblock that was found to where it is not: of the two places the next snapshot
/// overwrites one, and may be the last thing that this process does.
Status mend_superblocks(const StorageFile& file, FileQueue& queue, const FoundSuperblock& found) {
  for (std::size_t copy = 0; copy < superblock_copies; ++copy) {
    if (found.is_it[copy]) continue;
    Blocks memory(queue, superblock_bytes);
    write_superblock(memory.span(), *found.newest);
    TERRACE_TRY(run(file, queue, write_of(copy * superblock_bytes, memory.span())));
  }
  return {};
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
  if (!found) {
    TERRACE_TRY(container->write_all(file, queue));
    return container;
  }
  TERRACE_TRY(mend_superblocks(file, queue, best));
  TERRACE_TRY(container->read(file, queue));
  return container;
}

Container::Container(const ContainerLayout& layout, const Superblock& superblock)
    : layout_(layout),
      superblock_(superblock),
      directory_(layout.pages, superblock.pages_max),
      journal_block_(journal_copies * record_block_bytes),
      snapshot_piece_(piece_bytes) {}

/// Makes the file a container without pages.
Status Container::write_all(const StorageFile& file, FileQueue& queue) {
  // A device may hold blocks of an older journal: numbers would begin among them.
  const Blocks zeros(queue, std::min<std::uint64_t>(piece_bytes, layout_.journal.bytes));
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
    // The pages of a damaged one are lost, and no others.
    if (!found || found->name != name) return;
    for (const PageRecord& record : found->records) directory_.apply(record);
  });
}

Status Container::read_journal(const StorageFile& file, FileQueue& queue) {
  const std::uint64_t blocks = ring_blocks();
  std::vector<std::optional<RecordBlock>> ring(blocks);
  std::uint64_t newest = superblock_.first_number;  // one behind the last that was written
  TERRACE_TRY(read_blocks(file, queue, layout_.journal,
                          [&](std::uint64_t at, std::span<const std::byte> bytes) {
                            auto found = read_records(bytes);
                            if (!found || found->name.purpose != RecordPurpose::journal) return;
                            if (found->name.number < superblock_.first_number) return;
                            newest = std::max(newest, found->name.number + 1);
                            ring[at / journal_copies] = std::move(*found);
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
  // A gap behind a damaged block may be wider than the ring, until the snapshot is there.
  return under_way_.empty() && !asks_for_snapshot_ && blocks_in_use() < ring_blocks();
}

FileTransfer Container::write(std::span<const PageRecord> records) {
  TERRACE_ASSERT(takes_records() && !records.empty());
  under_way_.assign(records.begin(), records.end());
  const auto bytes = journal_block_.span();
  const BlockName name{RecordPurpose::journal, 0, next_number_};
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    write_records(bytes.subspan(at, block), name, records);
  }
  const std::uint64_t place = next_number_ % ring_blocks();
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
  // Else the machine's end could leave a superblock without the snapshot that it names.
  if (!snapshot_->is_flushed) return FileTransfer{.direction = FileTransfer::Direction::flush};
  return next_superblock();
}

Container::Snapshot Container::begin_snapshot() const {
  Snapshot begun{.records = directory_.records(), .superblock = superblock_};
  ++begun.superblock.generation;
  begun.superblock.snapshot_records = begun.records.size();
  begun.superblock.first_number = next_number_;
  return begun;
}

FileTransfer Container::next_of_snapshot() {
  const std::uint64_t generation = snapshot_->superblock.generation;
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
  snapshot_->blocks_under_way = blocks;
  const std::uint64_t offset = snapshot_part(generation).begin + snapshot_->blocks_written * block;
  return write_of(offset, piece.first(blocks * block));
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
