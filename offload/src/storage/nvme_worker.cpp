#include "nvme_worker.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <system_error>
#include <utility>

#include "store_errors.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::offload {
namespace {

constexpr std::uint64_t page_bytes_each = 64 << 10;  // where no number of pages is named
constexpr std::size_t page_bytes_max = std::size_t{1} << 30;
constexpr std::size_t own_transfers = 2;  // of records and of a snapshot
constexpr std::size_t store_depth_max = 4096 - own_transfers;
constexpr std::uint64_t part_bytes_max = std::uint64_t{1} << 20;
constexpr std::uint64_t bad_places_max = 16;  // a disk with more in one life is broken
constexpr std::uint64_t records_tag = 0;
constexpr std::uint64_t snapshot_tag = 1;

/// Whether a piece of a page is just what a request names, in memory of whole blocks.
bool needs_no_copy(const PageRequest& request, const PagePiece& piece) noexcept {
  constexpr std::size_t block = StorageFile::alignment;
  return reinterpret_cast<std::uintptr_t>(request.data) % block == 0 &&
         request.bytes % block == 0 && request.bytes == piece.bytes;
}

tl::unexpected<Error> no_copy(const PageRequest& request) {
  return fail(
      Errc::out_of_memory,
      "store nvme: no memory to move {} bytes through; memory of whole blocks of {} needs none",
      request.bytes, StorageFile::alignment);
}

tl::unexpected<Error> cancelled() {
  return fail(Errc::cancelled, "store nvme: the batch was cancelled before the request began");
}

}  // namespace

NvmeStore::Worker::Worker(StorageFile file, const NvmeStoreOptions& options)
    : file_(std::move(file)), options_(options), batches_("nvme", options.batches_max) {}

NvmeStore::Worker::~Worker() { end(); }

void NvmeStore::Worker::end() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
    if (queue_ != nullptr) queue_->wake();
  }
  if (thread_.joinable()) thread_.join();
}

Status NvmeStore::Worker::open() {
  const Status outcome = start();
  if (!outcome && !is_abandoned()) file_.undo();
  return outcome;
}

Status NvmeStore::Worker::start() {
  if (options_.queue.depth == 0 || options_.queue.depth > store_depth_max) {
    return fail(Errc::invalid_argument, "store nvme: its depth {} is not between 1 and {}",
                options_.queue.depth, store_depth_max);
  }
  if (!std::has_single_bit(options_.part_bytes) || options_.part_bytes < disk_block ||
      options_.part_bytes > part_bytes_max) {
    return fail(Errc::invalid_argument,
                "store nvme: parts of {} bytes are no power of two from {} to {}",
                options_.part_bytes, disk_block, part_bytes_max);
  }
  std::promise<Status> opened;
  std::future<Status> outcome = opened.get_future();
  try {
    thread_ = Thread([this, &opened] { run(opened); });
  } catch (const std::system_error& error) {
    return fail(Errc::out_of_memory, "store nvme: no thread for it: {}", error.what());
  }
  thread_.set_name("nvme");
  return outcome.get();
}

void NvmeStore::Worker::cancel_some() noexcept {
  any_cancelled_ = true;
  queue_->wake();
}

StoreUsage NvmeStore::Worker::usage() const {
  const std::scoped_lock lock(mutex_);
  return usage_;
}

NvmeStoreState NvmeStore::Worker::state() const {
  const std::scoped_lock lock(mutex_);
  return state_;
}

void NvmeStore::Worker::run(std::promise<Status>& opened) {
  Status outcome;
  try {
    outcome = set_up();
  } catch (const std::bad_alloc&) {
    outcome =
        fail(Errc::out_of_memory, "store nvme: no memory for the directory of {}", file_.path());
  }
  if (!outcome && !is_abandoned()) queue_.reset();
  opened.set_value(outcome);  // its owner may be gone from here on
  if (!outcome) return;
  serve();
  // The owner is done with the queue, which ends by the thread that opened it.
  const std::scoped_lock lock(mutex_);
  if (!is_abandoned()) queue_.reset();
}

bool NvmeStore::Worker::is_abandoned() const noexcept {
  return queue_ != nullptr && queue_->in_flight() > 0;
}

void NvmeStore::Worker::keep(std::unique_ptr<Worker> worker) {
  static std::mutex guard;
  // Never destroyed: not even the end of the process stops the disk.
  static auto* const kept = new std::vector<std::unique_ptr<Worker>>();
  const std::scoped_lock lock(guard);
  kept->push_back(std::move(worker));
}

Status NvmeStore::Worker::set_up() {
  FileQueueOptions transfers = options_.queue;
  transfers.depth += own_transfers;
  TERRACE_ASSIGN(queue_, options_.open_queue(file_, transfers));
  const std::uint64_t bytes = std::max(file_.bytes(), options_.file.bytes);
  const std::uint64_t pages_max = options_.pages_max > 0
                                      ? options_.pages_max
                                      : std::max<std::uint64_t>(bytes / page_bytes_each, 1);
  TERRACE_ASSIGN(container_, Container::open(file_, *queue_,
                                             {.pages_max = pages_max,
                                              .part_bytes = options_.part_bytes,
                                              .file_bytes = options_.file.bytes,
                                              .contents = options_.contents}));
  passages_.resize(own_transfers + options_.queue.depth);
  for (std::size_t tag = passages_.size(); tag > own_transfers; --tag)
    free_tags_.push_back(tag - 1);
  const ContainerDamage& damage = container_->damage();
  if (!damage.mended) degrade(damage.mended.error());
  {
    const std::scoped_lock lock(mutex_);
    state_.health.corrupt = damage.lost;
    state_.health.lost = damage.lost;
    state_.damaged_blocks = damage.blocks;
    state_.created = container_->is_new();
    state_.engine = queue_->engine();
    state_.direct = file_.direct();
    state_.registered_bytes = queue_->registered_bytes();
  }
  publish_usage();
  if (options_.on_found) {
    for (const PageRecord& record : container_->directory().records()) {
      options_.on_found(record.key);
    }
  }
  return {};
}

void NvmeStore::Worker::serve() {
  constexpr Duration long_time = std::chrono::hours(1);  // a thread with work wakes this one
  std::vector<FinishedTransfer> finished(passages_.size());
  std::optional<Deadline> end;
  while (true) {
    // Before the look for new batches, so that the last look finds all that there are.
    const bool is_told_to_end = stops_;
    advance();
    if (!arrived_.empty()) {
      // Checksums take time, in which the disk is at what has begun.
      for (auto& [passage, status] : std::exchange(arrived_, {})) {
        passed(std::move(passage), status);
      }
      advance();
    }
    if (is_told_to_end && !end) end.emplace(options_.queue.patience);
    const bool is_idle = queue_->in_flight() == 0 && changes_.empty();
    if (end && (is_idle || end->left() == Duration{})) return;
    const std::size_t count = queue_->reap(finished, end ? end->left() : long_time);
    for (const FinishedTransfer& each : std::span(finished).first(count)) hear(each);
  }
}

void NvmeStore::Worker::advance() {
  take_new();
  if (any_cancelled_.exchange(false) || stops_) end_cancelled();
  begin_some();
  write_snapshot();
  while (write_records()) begin_some();  // that waited for keys of what could not be written
  hand_over();
}

void NvmeStore::Worker::take_new() {
  for (auto& batch : batches_.take()) {
    for (PageRequest& request : batch->requests) order_.add({batch, &request});
  }
}

void NvmeStore::Worker::end_cancelled() {
  order_.take_out([&](const Work& work) {
    if (!stops_ && !work.batch->is_cancelled) return false;
    conclude(work, work.drops_page ? corrupt_page("nvme", work.request->key) : cancelled());
    return true;
  });
}

bool NvmeStore::Worker::has_room() const noexcept { return !free_tags_.empty(); }

std::optional<PageWork> NvmeStore::Worker::next() {
  if (!has_room()) return std::nullopt;
  const std::size_t background_max = std::max<std::size_t>(options_.queue.depth / 2, 1);
  return order_.next(/*with_background=*/background_under_way_ < background_max);
}

void NvmeStore::Worker::begin_some() {
  while (auto work = next()) begin(std::move(*work));
}

void NvmeStore::Worker::begin(Work work) {
  if (work.drops_page) return begin_drop(std::move(work));
  if (work.batch->is_cancelled || stops_) return finish(work, cancelled());
  if (const Status memory = check_memory("nvme", *work.request); !memory) {
    return finish(work, memory);
  }
  switch (work.request->verb) {
    case PageVerb::get:
    case PageVerb::get_part:
      return begin_get(std::move(work));
    case PageVerb::put:
      return begin_put(std::move(work));
    case PageVerb::erase:
      return begin_erase(std::move(work));
    case PageVerb::find:
      return begin_find(work);
  }
  finish(work, fail(Errc::invalid_argument, "store nvme: no such verb"));
}

void NvmeStore::Worker::begin_get(Work work) {
  const PageRequest& request = *work.request;
  const PageDirectory& directory = container_->directory();
  const StoredPage* const page = directory.find(request.key);
  if (page == nullptr) return finish(work, unknown_page("nvme", request.key));
  if (const Status range = check_range("nvme", request, page->bytes); !range) {
    return finish(work, range);
  }
  const PagePiece asked{request.verb == PageVerb::get ? 0 : request.offset, request.bytes};
  send({.work = std::move(work),
        .page = *page,
        .piece = directory.parts_of(page->bytes).covering(asked)},
       FileTransfer::Direction::read);
}

void NvmeStore::Worker::begin_put(Work work) {
  const PageRequest& request = *work.request;
  if (request.bytes == 0 || request.bytes > page_bytes_max) {
    return finish(work, fail(Errc::invalid_argument,
                             "store nvme: a page has 1 byte to 1 GiB, not {}", request.bytes));
  }
  if (!state_.degraded.empty()) {
    return finish(work, fail(Errc::io_error, "store nvme writes no more: {}", state_.degraded));
  }
  PageDirectory& directory = container_->directory();
  const bool adds_page = directory.find(request.key) == nullptr;
  const bool one_more = !adds_page || directory.size() + new_pages_ < directory.pages_max();
  const auto extent = one_more ? directory.take(request.bytes) : std::nullopt;
  if (!extent) {
    return finish(work, fail(Errc::out_of_memory,
                             "store nvme has no room for {} bytes beside {} pages of {} bytes",
                             request.bytes, directory.size(), directory.usage().page_bytes));
  }
  if (adds_page) ++new_pages_;
  const PageParts parts = directory.parts_of(request.bytes);
  StoredPage page{.offset = extent->offset,
                  .bytes = static_cast<std::uint32_t>(request.bytes),
                  .checksums = {request.key, {request.data, request.bytes}, parts}};
  send({.work = std::move(work),
        .page = std::move(page),
        .piece = {0, request.bytes},
        .adds_page = adds_page},
       FileTransfer::Direction::write);
}

void NvmeStore::Worker::begin_erase(Work work) {
  const PageKey key = work.request->key;
  if (container_->directory().find(key) == nullptr) return finish(work, unknown_page("nvme", key));
  changes_.push_back({.record = {.key = key}, .work = std::move(work), .outcome = {}});
}

/// No other request is at the page: its room may be used again once the record is there.
void NvmeStore::Worker::begin_drop(Work work) {
  const PageKey key = work.request->key;
  const auto corrupt = corrupt_page("nvme", key);
  // Another get of the page may have dropped it.
  if (container_->directory().find(key) == nullptr) return finish(work, corrupt);
  changes_.push_back({.record = {.key = key}, .work = std::move(work), .outcome = corrupt});
}

void NvmeStore::Worker::begin_find(const Work& work) {
  PageRequest& request = *work.request;
  const StoredPage* const page = container_->directory().find(request.key);
  request.bytes = page == nullptr ? 0 : page->bytes;
  finish(work, page == nullptr ? unknown_page("nvme", request.key) : Status{});
}

void NvmeStore::Worker::send(Passage passage, FileTransfer::Direction direction) {
  const PageRequest& request = *passage.work.request;
  const std::size_t bytes = align_up(passage.piece.bytes, StorageFile::alignment);
  std::byte* data = request.data;
  if (!needs_no_copy(request, passage.piece)) {
    try {
      passage.copy = AlignedBytes(bytes);
    } catch (const std::bad_alloc&) {
      if (direction == FileTransfer::Direction::write) take_back(passage);
      return finish(passage.work, no_copy(request));
    }
    data = passage.copy.data();
    if (direction == FileTransfer::Direction::write) {
      std::memcpy(data, request.data, request.bytes);
    }
  }
  const std::uint64_t tag = free_tags_.back();
  free_tags_.pop_back();
  const bool is_background = passage.work.is_background();
  if (is_background) ++background_under_way_;
  outgoing_.push_back({.direction = direction,
                       .data = data,
                       .bytes = bytes,
                       .offset = passage.page.offset + passage.piece.begin,
                       .tag = tag,
                       .is_background = is_background});
  passages_[tag] = std::move(passage);
}

void NvmeStore::Worker::take_back(const Passage& passage) {
  if (passage.adds_page) --new_pages_;
  container_->directory().give_back(extent_of(passage.page));
}

bool NvmeStore::Worker::write_records() {
  if (changes_.empty()) return false;
  if (!state_.degraded.empty()) {
    finish_changes(std::exchange(changes_, {}),
                   fail(Errc::io_error, "store nvme writes no more: {}", state_.degraded));
    return true;
  }
  if (!container_->takes_records()) return false;
  std::vector<PageRecord> records;
  for (const Change& change :
       std::span(changes_).first(std::min(changes_.size(), records_of_block))) {
    records.push_back(change.record);
  }
  records.resize(count_of_block(records));
  const auto behind = changes_.begin() + static_cast<std::ptrdiff_t>(records.size());
  std::move(changes_.begin(), behind, std::back_inserter(changes_under_way_));
  changes_.erase(changes_.begin(), behind);
  FileTransfer transfer = container_->write(records);
  transfer.tag = records_tag;
  outgoing_.push_back(transfer);
  return false;
}

void NvmeStore::Worker::write_snapshot() {
  if (!state_.degraded.empty()) return;
  auto transfer = container_->write_snapshot();
  if (!transfer) return;
  transfer->tag = snapshot_tag;
  transfer->is_background = true;
  outgoing_.push_back(*transfer);
}

void NvmeStore::Worker::hand_over() {
  if (outgoing_.empty()) return;
  publish_usage();
  const Status submitted = queue_->submit(outgoing_);
  TERRACE_ASSERT(submitted);  // there is a place in the queue for each tag
  outgoing_.clear();
}

void NvmeStore::Worker::hear(const FinishedTransfer& finished) {
  if (finished.tag == records_tag) return records_passed(finished.status);
  if (finished.tag == snapshot_tag) {
    if (!finished.status) return degrade(finished.status.error());
    return container_->snapshot_written();
  }
  free_tags_.push_back(finished.tag);
  Passage passage = std::exchange(passages_[finished.tag], {});
  if (passage.work.is_background()) --background_under_way_;
  arrived_.emplace_back(std::move(passage), finished.status);
}

void NvmeStore::Worker::passed(Passage passage, const Status& status) {
  const PageRequest& request = *passage.work.request;
  if (request.verb == PageVerb::put) return put_passed(std::move(passage), status);
  if (!status) {
    is_for_place(extent_of(passage.page), status.error());
    return finish(passage.work, status);
  }
  const PagePiece& piece = passage.piece;
  const std::byte* const data = passage.copy.data() == nullptr ? request.data : passage.copy.data();
  const PageParts parts = container_->directory().parts_of(passage.page.bytes);
  if (!passage.page.checksums.match(request.key, {data, piece.bytes}, piece.begin, parts)) {
    return found_damage(std::move(passage.work));
  }
  if (data != request.data) {
    const std::size_t skipped = request.verb == PageVerb::get ? 0 : request.offset - piece.begin;
    std::memcpy(request.data, data + skipped, request.bytes);
  }
  finish(passage.work, {});
}

void NvmeStore::Worker::put_passed(Passage passage, const Status& status) {
  if (status) {
    const PageKey key = passage.work.request->key;
    changes_.push_back({.record = {.key = key, .page = std::move(passage.page)},
                        .work = std::move(passage.work),
                        .outcome = {},
                        .adds_page = passage.adds_page});
    return;
  }
  const bool goes_on = is_for_place(extent_of(passage.page), status.error());
  take_back(passage);
  if (goes_on) {
    order_.begin_again(std::move(passage.work));  // to another place
    return;
  }
  degrade(status.error());
  finish(passage.work, status);
}

/// A page with a damaged part stays: its other parts may be intact.
void NvmeStore::Worker::found_damage(Work work) {
  {
    const std::scoped_lock lock(mutex_);
    ++state_.health.corrupt;
  }
  const PageRequest& request = *work.request;
  if (request.verb == PageVerb::get_part) return finish(work, corrupt_part("nvme", request));
  work.drops_page = true;
  order_.begin_again(std::move(work));
}

bool NvmeStore::Worker::is_for_place(const FileExtent& extent, const Error& error) {
  if (error.native != EIO && error.native != ENODATA && error.native != EILSEQ) return false;
  if (container_->directory().retire(extent)) {
    const std::scoped_lock lock(mutex_);
    ++state_.health.bad_places;
  }
  return state_.health.bad_places <= bad_places_max;
}

void NvmeStore::Worker::records_passed(const Status& status) {
  // Records written to a file that its path no longer leads to do not count as put.
  const Status kept = status ? file_.check_place() : status;
  if (kept) {
    container_->records_written();
  } else {
    degrade(kept.error());
  }
  finish_changes(std::exchange(changes_under_way_, {}), kept);
}

void NvmeStore::Worker::finish_changes(const std::vector<Change>& changes, const Status& written) {
  for (const Change& change : changes) {
    if (change.adds_page) --new_pages_;
    finish(change.work, change.outcome ? written : change.outcome);
  }
}

void NvmeStore::Worker::degrade(const Error& error) {
  if (!state_.degraded.empty()) return;
  const std::scoped_lock lock(mutex_);
  state_.health.writes = false;
  state_.degraded = error.message();
}

void NvmeStore::Worker::finish(const Work& work, const Status& status) {
  order_.give_up(work.request->key);
  conclude(work, status);
}

void NvmeStore::Worker::conclude(const Work& work, const Status& status) {
  work.request->status = status;
  if (--work.batch->left > 0) return;
  publish_usage();  // before any caller can see that the batch is done
  batches_.finish(*work.batch);
}

void NvmeStore::Worker::publish_usage() {
  const std::scoped_lock lock(mutex_);
  usage_ = container_->directory().usage();
}

}  // namespace terrace::offload
