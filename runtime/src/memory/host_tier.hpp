// Host memory of rows, and the store below it: pages, what moves them, and the chunks that the
// store keeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "measured_rate.hpp"
#include "plan/runtime_plan.hpp"
#include "terrace/core/backend.hpp"
#include "terrace/offload/host_pages.hpp"
#include "terrace/offload/page_mover.hpp"
#include "terrace/tiers/chunk_library.hpp"

namespace terrace {

/// Threads  safe from any thread
class HostTier {
 public:
  /// Opens the store that the plan's options name, or bring, and the daemon's client. The backend
  /// must outlive the tier. Errors: those of tiers::ChunkLibrary::open_file and open_daemon_tier().
  static Result<std::unique_ptr<HostTier>> open(const RuntimePlan& plan, Backend& backend);

  offload::HostPagePool& pages() noexcept { return *pages_; }
  /// Moves pages to the store below the host and back, and reads those of chunks; null = neither
  /// has a store.
  [[nodiscard]] offload::PageMover* mover() const noexcept { return mover_.get(); }
  /// Whether rows of all sequences may leave the host.
  [[nodiscard]] bool has_store() const noexcept { return mover_ != nullptr && mover_->has_store(); }
  /// The keeper of prefixes: the daemon, or else the store below the host. Null where there is
  /// neither, or where chunks of a caller's store are not asked for.
  [[nodiscard]] const std::shared_ptr<tiers::ChunkKeeper>& chunks() const noexcept {
    return chunks_;
  }

  /// Pages that may be on the host before the oldest leave it.
  [[nodiscard]] std::size_t pages_limit() const noexcept { return pages_limit_; }
  /// Whether so many pages are on the host that some will soon have to leave it.
  [[nodiscard]] bool is_filling() const noexcept {
    return has_store() && pages_->pages_in_use() > filling_pages_.load(std::memory_order_relaxed);
  }
  /// Counts up: pages that are wanted later have greater numbers.
  std::uint64_t count_wanted() noexcept { return wanted_.fetch_add(1, std::memory_order_relaxed); }

  /// So many bytes of rows have come from the store, and were waited for from `begin` to `end`.
  void note_read(std::uint64_t bytes, TimePoint begin, TimePoint end);
  /// Returns how many seconds it takes to read so many bytes; nothing if that is not known.
  [[nodiscard]] std::optional<double> read_seconds(std::uint64_t bytes, TimePoint now) const;
  /// All the time that rows were waited for.
  [[nodiscard]] Duration waited() const noexcept {
    return Duration(waited_.load(std::memory_order_relaxed));
  }

  /// The limit of the host's memory has changed: with a store, pages leave a part of that memory to
  /// other data.
  void follow_limit() noexcept;

 private:
  struct OpenedStore {
    std::shared_ptr<Store> store;
    std::uint64_t owner = 0;  ///< RowsBelowHost::owner
    std::shared_ptr<tiers::ChunkLibrary> chunks;
    std::shared_ptr<tiers::ChunkKeeper> daemon;
  };
  static Result<OpenedStore> open_store(const RuntimePlan& plan);
  /// Opens the store of a caller or of a file.
  static Status open_below(const RuntimePlan& plan, OpenedStore& opened);
  /// Has rows make room for themselves among the chunks that the store keeps.
  static std::function<bool(std::uint64_t bytes)> room_maker(const OpenedStore& opened);
  HostTier(Backend& backend, const RuntimePlan& plan) noexcept;

  Backend& backend_;
  const std::size_t pages_limit_;
  const double usual_read_rate_;
  std::unique_ptr<offload::HostPagePool> pages_;
  std::shared_ptr<tiers::ChunkKeeper> chunks_;
  std::unique_ptr<offload::PageMover> mover_;
  std::atomic<std::size_t> filling_pages_{0};  ///< from more on, pages are copied ahead
  std::atomic<std::uint64_t> wanted_{0};
  MeasuredRate reads_{std::chrono::minutes(1)};
  std::atomic<Duration::rep> waited_{0};
};

}  // namespace terrace
