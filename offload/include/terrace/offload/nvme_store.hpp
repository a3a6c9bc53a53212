// A store in one file of a disk. Its pages outlast the process.
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
//   that were recorded before it: any of them may have had a newer version. One case is not
//   noticed: the disk reported the last block as written, but never wrote it.
// - Another process removes, moves, replaces or cuts the file. The next put or erase ends as
//   io_error, and the store writes no more; puts that had ended before are lost with the file.
//
// A store belongs to the process that opened it: in a child that fork() made, all calls are
// refused, and the destructor does nothing.
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
  /// An existing file must be a container, or begin with 1 MiB of zeros, or be shorter and hold
  /// only zeros; any other file is never overwritten. A file of zeros that is shorter than the size
  /// given here is extended to it: the process that made it ended in the middle.
  StorageFileOptions file;
  /// Names the user of the pages; a file with another name is refused. At most 512 bytes.
  std::string contents = {};
  /// Most pages in a file that is made; 0 = one for each 64 KiB. A file that is there keeps its
  /// own.
  std::uint64_t pages_max = 0;
  /// Bytes of a part of a page, in a new file. Each part has its own checksum, and get_part reads
  /// whole parts. Pages that would have over 256 of these parts have larger ones. A power of two,
  /// 4 KiB to 1 MiB. An existing file keeps its own.
  std::uint64_t part_bytes = 64 << 10;
  /// How transfers are made, at most 4094 at a time. Pages that lie in `memory` cost less.
  FileQueueOptions queue = {};
  std::size_t batches_max = 1024;  ///< under way
  /// Called once for each page that the file has, in any order, on the store's thread, before
  /// open() returns.
  std::function<void(const PageKey&)> on_found = {};
  /// Opens the queue of transfers; tests bring their own.
  std::function<Result<std::unique_ptr<FileQueue>>(const StorageFile&, const FileQueueOptions&)>
      open_queue = &FileQueue::open;
};

struct NvmeStoreState {
  /// `lost` counts pages whose records open() gave up because blocks of the directory are damaged;
  /// for a block that nobody can read, one. Pages that were put again since their record was
  /// written are still there. `corrupt` counts reads of parts, too.
  StoreHealth health = {};
  /// Blocks of the directory that open() found damaged, or could not read. A block with an intact
  /// copy loses nothing.
  std::uint64_t damaged_blocks = 0;
  /// Why the store writes no more: the disk's first error in writing, or the change of the file;
  /// empty = the store writes.
  std::string degraded = {};

  bool created = false;                ///< whether open() made the container: it had no page
  std::string_view engine = {};        ///< that makes transfers: "io_uring" or "threads"
  bool direct = false;                 ///< whether transfers pass the page cache by (O_DIRECT)
  std::uint64_t registered_bytes = 0;  ///< of NvmeStoreOptions::queue.memory
};

/// Pages have 1 byte to 1 GiB. A page that begins at a multiple of StorageFile::alignment in
/// memory, and has a multiple of it in bytes, is moved without a copy. A get_part moves whole parts
/// without a copy under the same condition.
///
/// Requests of priority `background` have at most half of NvmeStoreOptions::queue.depth under way:
/// the other half is kept for awaited requests, which begin at once.
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
  /// Opens a store. If this fails, an existing file is unchanged, and a new file is removed.
  ///
  /// Errors   those of StorageFile::open and FileQueue::open; of a file that is there: io_error: no
  ///          container, or one whose directory cannot be read; invalid_argument: of other
  ///          contents; unsupported: of another version
  [[nodiscard]] static Result<std::unique_ptr<NvmeStore>> open(const NvmeStoreOptions& options);

  /// Ends requests that are under way, and cancels requests not yet begun. If the disk does not
  /// answer within the queue's patience, the resources of its transfers are never freed, and the
  /// file stays locked until the process ends; memory of the requests must stay, too, and their
  /// batches are never done.
  ~NvmeStore() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nvme"; }
  void cancel(const StoreTicket& ticket) noexcept override;

  /// Returns the use of the file, rounded up to StorageFile::alignment. Exact as soon as the store
  /// is open; zero in a child of fork().
  [[nodiscard]] StoreUsage usage() const override;

  [[nodiscard]] StoreHealth health() const override;
  [[nodiscard]] NvmeStoreState state() const;

 private:
  class Worker;
  explicit NvmeStore(std::unique_ptr<Worker> worker);
  [[nodiscard]] Status check_process() const;
  Result<StoreTicket> do_submit(std::span<PageRequest> batch, const BatchOptions& options) override;

  std::unique_ptr<Worker> worker_;
};

}  // namespace terrace::offload
