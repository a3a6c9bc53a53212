// A store in one file of a disk, which is there again when the process is.
//
//   TERRACE_ASSIGN(auto store, NvmeStore::open({.file = {.path = path, .bytes = bytes},
//                                               .contents = "llama, f16, ..."}));
//
// A page is there once its put has ended well: whatever ends the process after that, it is read
// back as it was written. Each part of a page has a checksum (XXH3 of key, number and bytes),
// looked at whenever it is read. Three things take that back:
//
// - The machine itself ends: pages of the last moments may be gone, or as they were before, for
//   only snapshots of the directory are flushed.
// - The disk damages blocks. A damaged page is `corrupt`, one that cannot be read `io_error`. A
//   damaged block of the directory has a copy, or its pages are gone and counted
//   (NvmeStoreState::lost). Where both copies of a block of the journal are lost, so are all pages
//   that were recorded before it: any of them may have had a newer version. Only that the disk
//   never wrote the last block, of which it said that it had, is not noticed.
// - Another removes, moves, replaces or cuts the file. The next put or erase ends as io_error, and
//   the store writes no more; those that had ended before are lost with the file.
//
// A store is of the process that opened it: in a child that fork() made, all calls are refused, and
// its end does nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/store.hpp"
#include "terrace/offload/file_queue.hpp"
#include "terrace/offload/storage_file.hpp"

namespace terrace::offload {

struct NvmeStoreOptions {
  /// One that is there must be a container, or begin with 1 MiB of zeros, or be shorter and zeros
  /// alone: it is never overwritten else. One of zeros that has fewer bytes than are named here
  /// gets them: its maker ended in the middle.
  StorageFileOptions file;
  /// Whose pages these are: a file with others is refused. At most 512 bytes.
  std::string contents = {};
  /// Most pages in a file that is made; 0 = one for each 64 KiB. A file that is there keeps its
  /// own.
  std::uint64_t pages_max = 0;
  /// Of a page in a file that is made: so many bytes have a checksum of their own, and are read
  /// where get_part asks for some of them; more in pages that would have over 256 of these parts. A
  /// power of two, 4 KiB to 1 MiB. A file that is there keeps its own.
  std::uint64_t part_bytes = 64 << 10;
  /// How transfers are made, at most 4094 at a time. Pages that lie in `memory` cost less.
  FileQueueOptions queue = {};
  std::size_t batches_max = 1024;  ///< under way
  /// Opens the queue of transfers; tests bring their own.
  std::function<Result<std::unique_ptr<FileQueue>>(const StorageFile&, const FileQueueOptions&)>
      open_queue = &FileQueue::open;
};

struct NvmeStoreState {
  /// Gets, of pages or of parts, that found what was not written; and all pages that are `lost`.
  std::uint64_t corrupt = 0;
  /// Pages whose records open() gave up, for blocks of the directory are damaged. Those that were
  /// put again since their record was written are there all the same.
  std::uint64_t lost = 0;
  /// Blocks of the directory that open() found damaged, or could not read. One of which a copy is
  /// whole loses nothing.
  std::uint64_t damaged_blocks = 0;
  /// Places that the disk could not read or write since open(), which are not used again.
  std::uint64_t bad_places = 0;
  /// Why nothing is written any longer: the disk's first error in writing, or what has become of
  /// the file; empty = it is.
  std::string degraded = {};

  bool created = false;                ///< whether open() made the container: it had no page
  std::string_view engine = {};        ///< that makes transfers: "io_uring" or "threads"
  bool direct = false;                 ///< whether transfers pass the page cache by (O_DIRECT)
  std::uint64_t registered_bytes = 0;  ///< of NvmeStoreOptions::queue.memory
};

/// Pages have 1 byte to 1 GiB. A page that begins at a multiple of StorageFile::alignment in
/// memory, and has a multiple of it in bytes, is moved without a copy; of some bytes of a page, so
/// are whole parts.
///
/// Requests of priority `background` have at most half of NvmeStoreOptions::queue.depth under way:
/// of the other half an awaited one has its place at once.
///
/// Where the disk says of a place that it cannot be read or written (EIO), the place is not used
/// again while the store is open, and a put goes to another; after 16 of them the store writes no
/// more.
///
/// Errors   of a request: invalid_argument: no such page, one of another size, or no memory;
///          out_of_memory: no room for a put, the page that was there stays; corrupt: of a get: the
///          page is dropped, while the store writes; of a get_part: it stays; io_error: the disk's,
///          and of puts and erases all that follow an error in writing; cancelled: its batch was
///          cancelled before it began, or the store ended
///          of a call: unsupported: in a child of fork()
/// Threads  safe from any thread
class NvmeStore final : public Store {
 public:
  /// Where it fails, the file is as it was, and one that was made is gone.
  ///
  /// Errors   those of StorageFile::open and FileQueue::open; of a file that is there: io_error: no
  ///          container, or one whose directory cannot be read; invalid_argument: of other
  ///          contents; unsupported: of another version
  [[nodiscard]] static Result<std::unique_ptr<NvmeStore>> open(const NvmeStoreOptions& options);

  /// Ends requests that are under way, and cancels those not yet begun. Where the disk does not
  /// answer for the queue's patience, what its transfers use is never freed, and the file stays
  /// locked until the process ends; memory of the requests must stay, too, and their batches are
  /// never done.
  ~NvmeStore() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nvme"; }
  void cancel(const StoreTicket& ticket) noexcept override;

  /// Rounding is up to StorageFile::alignment. Right as soon as the store is open; nothing in a
  /// child of fork().
  [[nodiscard]] StoreUsage usage() const override;

  [[nodiscard]] NvmeStoreState state() const;

 private:
  class Worker;
  explicit NvmeStore(std::unique_ptr<Worker> worker);
  [[nodiscard]] Status check_process() const;
  Result<StoreTicket> do_submit(std::span<PageRequest> batch, const BatchOptions& options) override;

  std::unique_ptr<Worker> worker_;
};

}  // namespace terrace::offload
