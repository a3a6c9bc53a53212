// A container: a file that keeps pages, and remembers them whatever ends the process.
//
// The directory is in memory. Each change of it is a record of the journal, a ring of numbered
// blocks, each there twice; what the ring is about to overwrite is in a snapshot of the whole
// directory before. A page is there once its record is; its bytes are written before, and their
// place is not used for another page before the record that frees it is there. So after any end the
// file holds each page whose record was written, and of no other page a byte is taken for its own.
//
// This class says what is to be written and hears when that is done: it waits for nothing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "container_layout.hpp"
#include "page_directory.hpp"
#include "record_block.hpp"
#include "terrace/offload/aligned_bytes.hpp"
#include "terrace/offload/file_queue.hpp"

namespace terrace::offload {

struct ContainerOptions {
  std::uint64_t pages_max = 0;
  std::uint64_t part_bytes = disk_block;  ///< of pages: PageParts
  std::uint64_t file_bytes = 0;           ///< at least, if it is made; 0 = as many as the file has
  std::string contents = {};  ///< names the pages' user; at most Superblock::contents_max bytes
};

/// Damage that open() found.
struct ContainerDamage {
  std::uint64_t blocks = 0;  ///< of the directory, each copy for itself
  std::uint64_t lost = 0;    ///< pages whose records were in them
  /// Whether damaged blocks with an intact copy were written again. Errors: the disk's; nothing
  /// must be written then, for a write could destroy the intact copy.
  Status mended = {};
};

/// Threads  one at a time
class Container {
 public:
  /// Reads what a file holds, or makes a file that only zeros begin a container. Nothing is written
  /// before it is known that it can be opened.
  ///
  /// Errors   invalid_argument: too small a file, or one of other contents; unsupported: one of
  ///          another version; io_error: no container, or one that cannot be read
  [[nodiscard]] static Result<std::unique_ptr<Container>> open(StorageFile& file, FileQueue& queue,
                                                               const ContainerOptions& options);

  [[nodiscard]] PageDirectory& directory() noexcept { return directory_; }
  [[nodiscard]] const PageDirectory& directory() const noexcept { return directory_; }
  /// Whether open() made it.
  [[nodiscard]] bool is_new() const noexcept { return is_new_; }
  [[nodiscard]] const ContainerDamage& damage() const noexcept { return damage_; }

  /// Whether records can be written now: no other records are under way, and the journal has room.
  [[nodiscard]] bool takes_records() const noexcept;
  /// Returns the transfer that writes records, at most those of a block.
  [[nodiscard]] FileTransfer write(std::span<const PageRecord> records);
  /// Hears that they were written: takes them over and frees what they free.
  void records_written();

  /// Returns the next transfer of a snapshot, if one is due and none is on its way.
  [[nodiscard]] std::optional<FileTransfer> write_snapshot();
  /// Hears that it was written.
  void snapshot_written();

 private:
  /// A snapshot that is being written: its blocks, then one superblock after the other, each after
  /// a flush.
  struct Snapshot {
    std::vector<PageRecord> records;
    Superblock superblock;          ///< that will hold
    std::size_t records_taken = 0;  ///< that are in blocks which are written or under way
    std::uint64_t blocks_written = 0;
    std::uint64_t blocks_under_way = 0;
    std::size_t superblocks_written = 0;
    bool is_flushed = false;    ///< all that was written of it
    bool is_under_way = false;  ///< a transfer of it

    /// Whether all of its blocks are written.
    [[nodiscard]] bool is_whole() const noexcept {
      return blocks_written == superblock.snapshot_blocks;
    }
  };

  Container(const ContainerLayout& layout, const Superblock& superblock);

  /// The contents of the copies of a pair, read at their place of the ring.
  struct Pair {
    std::optional<RecordBlock> records;  ///< that change the snapshot
    std::size_t copies = 0;              ///< that have them
    bool has_older = false;              ///< one is as it was before
  };

  static Result<std::unique_ptr<Container>> create(StorageFile& file, FileQueue& queue,
                                                   const ContainerOptions& options);
  Status read(const StorageFile& file, FileQueue& queue);
  Status read_snapshot(const StorageFile& file, FileQueue& queue);
  Status read_journal(const StorageFile& file, FileQueue& queue);
  [[nodiscard]] Result<std::vector<Pair>> read_ring(const StorageFile& file, FileQueue& queue);
  void take_over(Pair pair);
  void pass_over(std::vector<Pair> ring, std::uint64_t newest);
  Status mend(const StorageFile& file, FileQueue& queue,
              const std::array<bool, superblock_copies>& superblocks);
  Status write_all(const StorageFile& file, FileQueue& queue);

  [[nodiscard]] std::uint64_t ring_blocks() const noexcept;
  [[nodiscard]] std::uint64_t blocks_in_use() const noexcept;
  [[nodiscard]] const FilePart& snapshot_part(std::uint64_t generation) const noexcept;
  [[nodiscard]] Snapshot begin_snapshot() const;
  [[nodiscard]] FileTransfer next_of_snapshot();
  [[nodiscard]] FileTransfer next_superblock();
  /// Writes both copies of a block of the journal to `bytes`, and returns their transfer.
  [[nodiscard]] FileTransfer write_pair(std::uint64_t number, std::span<const PageRecord> records,
                                        std::span<std::byte> bytes) const;

  ContainerLayout layout_;
  Superblock superblock_;  ///< the one that holds
  PageDirectory directory_;
  std::uint64_t next_number_ = 0;  ///< of the journal's blocks
  std::uint64_t boot_mark_;
  bool asks_for_snapshot_ = false;
  bool is_new_ = false;
  ContainerDamage damage_;
  std::vector<RecordBlock> to_mend_;  ///< blocks of the journal that are not there twice
  std::vector<PageRecord> under_way_;
  AlignedBytes journal_block_;
  AlignedBytes snapshot_piece_;
  std::optional<Snapshot> snapshot_;
};

}  // namespace terrace::offload
