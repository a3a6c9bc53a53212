// A disk in memory that ends in the middle of its work: writes arrive in any order, the last one in
// part, and none after it.
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "terrace/core/rng.hpp"
#include "terrace/offload/file_queue.hpp"

namespace terrace::offload {

/// Bytes that outlive the queues over them.
///
/// Threads  safe from any thread
class DiskImage {
 public:
  DiskImage(std::size_t bytes, std::uint64_t seed) : bytes_(bytes), rng_(seed) {}

  /// Has the disk end with the `nth` write from now on, which arrives in part.
  void end_with_write(std::uint64_t nth) {
    const std::scoped_lock lock(mutex_);
    writes_left_ = nth;
  }
  /// Makes an ended disk work again, with what arrived.
  void revive() {
    const std::scoped_lock lock(mutex_);
    writes_left_ = forever;
  }
  [[nodiscard]] bool has_ended() {
    const std::scoped_lock lock(mutex_);
    return writes_left_ == 0;
  }
  void flip(std::size_t bit) {
    const std::scoped_lock lock(mutex_);
    bytes_[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  [[nodiscard]] std::vector<std::byte> copy() {
    const std::scoped_lock lock(mutex_);
    return bytes_;
  }
  void restore(const std::vector<std::byte>& copy) {
    const std::scoped_lock lock(mutex_);
    bytes_ = copy;
  }

  /// Fails transfers from now on; 0 = no failure.
  void fail_with(int read_error, int write_error) {
    const std::scoped_lock lock(mutex_);
    read_error_ = read_error;
    write_error_ = write_error;
  }
  /// Fails transfers that touch some bytes from now on, as bad places of a disk do.
  void spoil(std::size_t begin, std::size_t bytes, int read_error, int write_error) {
    const std::scoped_lock lock(mutex_);
    bad_places_.push_back({begin, begin + bytes, read_error, write_error});
  }
  /// Makes bad places good again.
  void heal() {
    const std::scoped_lock lock(mutex_);
    bad_places_.clear();
  }
  /// Transfers that bad places failed.
  [[nodiscard]] std::size_t bad_reads() {
    const std::scoped_lock lock(mutex_);
    return bad_reads_;
  }
  [[nodiscard]] std::size_t bad_writes() {
    const std::scoped_lock lock(mutex_);
    return bad_writes_;
  }
  void clear(std::size_t at, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    std::memset(bytes_.data() + at, 0, bytes);
  }
  /// Has a block of the journal be one that was written before the machine began anew: a checksum,
  /// the purpose, and in which of the machine's lives.
  void write_in_an_earlier_boot(std::size_t at) {
    const std::scoped_lock lock(mutex_);
    bytes_[at + 2 * sizeof(std::uint64_t)] ^= std::byte{1};
    seal(at);
  }
  /// Has a superblock be one of another version: a checksum, eight letters, the version.
  void write_version(std::size_t at, std::uint32_t version) {
    const std::scoped_lock lock(mutex_);
    std::memcpy(bytes_.data() + at + 2 * sizeof(std::uint64_t), &version, sizeof version);
    seal(at);
  }
  void move_bytes(std::size_t from, std::size_t to, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    std::memmove(bytes_.data() + to, bytes_.data() + from, bytes);
  }

  /// Makes transfers wait until the next call, with false.
  void hold(bool holds) {
    const std::scoped_lock lock(mutex_);
    holds_ = holds;
    handed_over_ = 0;
  }
  /// Waits until a queue has so many transfers more than when hold() was called.
  void await_handed_over(std::size_t count) {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return handed_over_ >= count; });
  }
  void note_handed_over(std::size_t count) {
    const std::scoped_lock lock(mutex_);
    handed_over_ += count;
    news_.notify_all();
  }
  [[nodiscard]] bool holds() {
    const std::scoped_lock lock(mutex_);
    return holds_;
  }

  /// A number below `bound`.
  std::size_t draw(std::size_t bound) {
    const std::scoped_lock lock(mutex_);
    return rng_.below(bound);
  }

  Status carry_out(const FileTransfer& transfer) {
    const std::scoped_lock lock(mutex_);
    if (transfer.direction == FileTransfer::Direction::flush) return {};
    const bool is_read = transfer.direction == FileTransfer::Direction::read;
    if (const int error = error_of(transfer, is_read); error != 0) {
      Error failed = make_error(Errc::io_error, "the disk says {}", error);
      failed.native = error;
      return tl::unexpected(failed);
    }
    if (is_read) {
      std::memcpy(transfer.data, bytes_.data() + transfer.offset, transfer.bytes);
      return {};
    }
    if (writes_left_ == 0) return {};
    if (writes_left_ != forever) --writes_left_;
    constexpr std::size_t sector = 512;  // arrives whole, or not
    const std::size_t arrives =
        writes_left_ == 0 ? sector * rng_.below(transfer.bytes / sector) : transfer.bytes;
    std::memcpy(bytes_.data() + transfer.offset, transfer.data, arrives);
    return {};
  }

 private:
  static constexpr std::uint64_t forever = ~std::uint64_t{0};
  struct BadPlace {
    std::size_t begin = 0, end = 0;
    int read_error = 0, write_error = 0;
  };

  void seal(std::size_t at) {
    std::byte* const block = bytes_.data() + at;
    const std::uint64_t sum = XXH3_64bits(block + sizeof sum, StorageFile::alignment - sizeof sum);
    std::memcpy(block, &sum, sizeof sum);
  }

  int error_of(const FileTransfer& transfer, bool is_read) {
    for (const BadPlace& place : bad_places_) {
      const int error = is_read ? place.read_error : place.write_error;
      const bool touches =
          transfer.offset < place.end && place.begin < transfer.offset + transfer.bytes;
      if (error == 0 || !touches) continue;
      ++(is_read ? bad_reads_ : bad_writes_);
      return error;
    }
    return is_read ? read_error_ : write_error_;
  }

  std::mutex mutex_;
  std::vector<std::byte> bytes_;
  Rng rng_;
  std::uint64_t writes_left_ = forever;
  int read_error_ = 0;
  int write_error_ = 0;
  std::vector<BadPlace> bad_places_;
  std::size_t bad_reads_ = 0;
  std::size_t bad_writes_ = 0;
  bool holds_ = false;
  std::size_t handed_over_ = 0;
  std::condition_variable news_;
};

/// A queue over an image. It carries out one at random of the transfers under way.
class ImageQueue final : public FileQueue {
 public:
  ImageQueue(const StorageFile& file, const FileQueueOptions& options, DiskImage& image)
      : FileQueue(file, options.depth), image_(image) {}

  [[nodiscard]] std::string_view engine() const noexcept override { return "image"; }
  void wake() noexcept override {
    {
      const std::scoped_lock lock(mutex_);
      woken_ = true;
    }
    news_.notify_one();
  }

 private:
  void do_submit(std::span<const FileTransfer> transfers) override {
    waiting_.insert(waiting_.end(), transfers.begin(), transfers.end());
    image_.note_handed_over(transfers.size());
  }

  std::size_t do_reap(std::span<FinishedTransfer> finished, Duration timeout) override {
    if (waiting_.empty() || image_.holds()) {
      std::unique_lock lock(mutex_);
      // Short, for a held image does not wake.
      news_.wait_for(lock, std::min<Duration>(timeout, std::chrono::milliseconds(1)),
                     [&] { return woken_; });
      woken_ = false;
      return 0;
    }
    const auto chosen =
        waiting_.begin() + static_cast<std::ptrdiff_t>(image_.draw(waiting_.size()));
    finished[0] = {.tag = chosen->tag, .status = image_.carry_out(*chosen)};
    waiting_.erase(chosen);
    return 1;
  }

  DiskImage& image_;
  std::deque<FileTransfer> waiting_;
  std::mutex mutex_;
  std::condition_variable news_;
  bool woken_ = false;
};

}  // namespace terrace::offload
