// The thread of a store on a disk: it has a container and the queue of its file, and carries out
// requests.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "container.hpp"
#include "request_order.hpp"
#include "terrace/offload/aligned_bytes.hpp"
#include "terrace/offload/nvme_store.hpp"
#include "terrace/offload/thread.hpp"

namespace terrace::offload {

/// Requests begin as RequestOrder has them, and end as the disk answers.
///
/// Threads  open() and the end by the owner; batches(), wake(), cancel_some(), usage() and state()
///          from any; all else by the worker's thread
class NvmeStore::Worker {
 public:
  Worker(StorageFile file, const NvmeStoreOptions& options);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  /// Starts the thread, which reads the file. Errors: those of NvmeStore::open; the file is as it
  /// was before then.
  [[nodiscard]] Status open();

  /// Ends the thread. It waits for transfers under way, for the queue's patience.
  void end() noexcept;

  [[nodiscard]] PageBatches& batches() noexcept { return batches_; }
  /// Has the thread look for new batches.
  void wake() noexcept { queue_->wake(); }
  /// Has the thread cancel what has not begun of batches that are marked.
  void cancel_some() noexcept;
  [[nodiscard]] StoreUsage usage() const;
  [[nodiscard]] NvmeStoreState state() const;
  /// Whether this is the process that opened the store, and not a child of it: a child has neither
  /// the thread nor the file, and locks may be held in it for ever.
  [[nodiscard]] bool is_of_this_process() const noexcept { return file_.descriptor() >= 0; }
  /// Whether the thread has ended with transfers under way that the disk has not answered: they may
  /// still write to memory of this object, and to the file, which has to stay locked. Such an
  /// object stays for ever.
  [[nodiscard]] bool is_abandoned() const noexcept;
  /// Keeps such an object until the process ends.
  static void keep(std::unique_ptr<Worker> worker);

 private:
  using Work = PageWork;
  /// A request whose page is on its way, or whole parts of it.
  struct Passage {
    Work work;
    StoredPage page = {};
    PagePiece piece = {};    ///< that is moved
    bool adds_page = false;  ///< a put of a page that is not there yet
    AlignedBytes copy = {};  ///< where the request's memory is not made of blocks
  };
  /// A record that is to be written, and how its request ends then: a get of a damaged page has the
  /// page erased, and is corrupt.
  struct Change {
    PageRecord record;
    Work work;
    Status outcome = {};
    bool adds_page = false;
  };

  Status start();
  void run(std::promise<Status>& opened);
  Status set_up();
  void serve();
  /// Begins what can begin.
  void advance();
  void take_new();
  void end_cancelled();
  void begin_some();
  [[nodiscard]] std::optional<Work> next();
  void begin(Work work);
  void begin_get(Work work);
  void begin_put(Work work);
  void begin_erase(Work work);
  void begin_drop(Work work);
  void begin_find(const Work& work);
  void send(Passage passage, FileTransfer::Direction direction);
  /// Frees the extent reserved by a failed put.
  void take_back(const Passage& passage);
  /// Returns whether nothing is written, and requests have ended instead.
  bool write_records();
  void write_snapshot();
  void hand_over();

  void hear(const FinishedTransfer& finished);
  void passed(Passage passage, const Status& status);
  void put_passed(Passage passage, const Status& status);
  void found_damage(Work work);
  /// Looks whether a transfer failed for its place; if so, the place is not used again.
  bool is_for_place(const FileExtent& extent, const Error& error);
  void records_passed(const Status& status);
  void finish_changes(const std::vector<Change>& changes, const Status& written);
  void degrade(const Error& error);

  /// Completes a request that holds its key.
  void finish(const Work& work, const Status& status);
  /// Completes a request that does not hold its key.
  void conclude(const Work& work, const Status& status);
  [[nodiscard]] bool has_room() const noexcept;
  void publish_usage();

  StorageFile file_;
  NvmeStoreOptions options_;
  PageBatches batches_;
  std::unique_ptr<FileQueue> queue_;
  std::unique_ptr<Container> container_;
  Thread thread_;
  std::atomic<bool> stops_{false};
  std::atomic<bool> any_cancelled_{false};

  RequestOrder order_;
  std::size_t background_under_way_ = 0;  ///< transfers
  std::vector<Passage> passages_;         ///< by tag
  std::vector<std::uint64_t> free_tags_;
  std::vector<std::pair<Passage, Status>> arrived_;  ///< that are still to be looked at
  std::size_t new_pages_ = 0;                        ///< that are on their way
  std::vector<Change> changes_;
  std::vector<Change> changes_under_way_;
  std::vector<FileTransfer> outgoing_;

  mutable std::mutex mutex_;  ///< guards both below, and queue_ between destructor and thread
  NvmeStoreState state_;
  StoreUsage usage_;
};

}  // namespace terrace::offload
