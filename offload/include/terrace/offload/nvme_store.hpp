// A store in one file of a disk, which is there again when the process is.
//
//   TERRACE_ASSIGN(auto store, NvmeStore::open({.file = {.path = path, .bytes = bytes},
//                                               .contents = "llama, f16, ..."}));
//
// A page is there once its put has ended well: whatever ends the process after that, it is read
// back as it was written. Each page has a checksum (XXH3 of key and bytes), looked at on every get.
// Where the machine itself ends, pages of the last moments may be gone or as they were before: only
// snapshots of the directory are flushed.
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
  /// One that is there must be a container, or begin with 1 MiB of zeros: it is never overwritten
  /// else.
  StorageFileOptions file;
  /// Whose pages these are: a file with others is refused. At most 512 bytes.
  std::string contents = {};
  /// Most pages in a file that is made; 0 = one for each 64 KiB. A file that is there keeps its
  /// own.
  std::uint64_t pages_max = 0;
  /// How transfers are made, at most 4094 at a time. Pages that lie in `memory` cost less.
  FileQueueOptions queue = {};
  std::size_t batches_max = 1024;  ///< under way
  /// Opens the queue of transfers; tests bring their own.
  std::function<Result<std::unique_ptr<FileQueue>>(const StorageFile&, const FileQueueOptions&)>
      open_queue = &FileQueue::open;
};

struct NvmeStoreState {
  std::uint64_t pages = 0;
  std::uint64_t page_bytes = 0;  ///< of all pages
  std::uint64_t corrupt = 0;     ///< gets of pages that were not what was written
  /// Why nothing is written any longer, the disk's first error in writing; empty = it is.
  std::string degraded = {};
};

/// Pages have 1 byte to 1 GiB. A page that begins at a multiple of StorageFile::alignment in
/// memory, and has a multiple of it in bytes, is moved without a copy.
///
/// Errors   of a request: invalid_argument: no such page, or of another size; out_of_memory: no
/// room
///          for a put, the page that was there stays; corrupt: the page is dropped, while the store
///          writes; io_error: the disk's, and of puts and erases all that follow an error in
///          writing; cancelled: the batch was given up before the request began, or the store ended
/// Threads  safe from any thread
class NvmeStore final : public Store {
 public:
  /// Errors   those of StorageFile::open and FileQueue::open; of a file that is there: io_error: no
  ///          container; invalid_argument: of other contents; unsupported: of another version
  [[nodiscard]] static Result<std::unique_ptr<NvmeStore>> open(const NvmeStoreOptions& options);

  /// Ends requests that are under way, and cancels those not yet begun. Where the disk does not
  /// answer for the queue's patience, what its transfers use is never freed, and the file stays
  /// locked until the process ends; memory of the requests must stay, too.
  ~NvmeStore() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nvme"; }
  [[nodiscard]] Result<StoreTicket> submit(std::span<PageRequest> batch) override;
  [[nodiscard]] Result<bool> poll(StoreTicket ticket) override;
  [[nodiscard]] Status wait(StoreTicket ticket, Duration timeout) override;

  [[nodiscard]] NvmeStoreState state() const;

 private:
  class Worker;
  explicit NvmeStore(std::unique_ptr<Worker> worker);

  std::unique_ptr<Worker> worker_;
};

}  // namespace terrace::offload
