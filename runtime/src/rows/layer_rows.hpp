// Where the rows of one layer lie, block by block: every block has a page on the host or, where
// there is a store below it, in that store, and may have a block of device memory.
//
// A page leaves the host only while its layer is quiesced: no enqueued work reads its rows there.
// Until work is enqueued, HostRows pins the pages that the work will read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "host_rows.hpp"
#include "memory/block_pool.hpp"
#include "memory/host_tier.hpp"
#include "plan/runtime_plan.hpp"
#include "pointer_table.hpp"
#include "terrace/core/ops.hpp"
#include "terrace/core/queue.hpp"
#include "terrace/offload/host_pages.hpp"
#include "terrace/offload/page_mover.hpp"
#include "terrace/tiers/chunk_lease.hpp"

namespace terrace {

/// Why a block is in device memory.
enum class BlockPlace : std::uint8_t {
  absent,
  resident,  ///< sinks, window, or not yet spilled
  cached,    ///< a copy that the resident cache keeps
};

/// Work that uses a layer's memory. A default ticket is done.
struct LayerTickets {
  Ticket offloaded;  ///< the newest rows, and what was selected, are on the host
  Ticket attended;   ///< the last op of the last step
  Ticket refilled;   ///< the last copy from the host into device blocks or slots
  Ticket fetched;    ///< the last rows that were selected have been read on the host
};

/// Threads  one at a time
class LayerRows {
 public:
  LayerRows(const RuntimePlan& plan, Backend& backend, BlockPool& blocks, HostTier& host);

  /// Makes room for so many blocks: tables and host pages; new blocks are absent on the device. A
  /// policy that keeps everything has no pages. Errors: out_of_memory.
  Status reserve(std::size_t blocks);
  /// Frees host tables that reserve() has replaced. No work may read them any more.
  void forget_old_tables() noexcept { host_.forget_old_copies(); }
  /// Pages that so many blocks lack.
  [[nodiscard]] std::size_t missing_pages(std::size_t blocks) const noexcept;
  /// Forgets the blocks after the first `blocks`, which must be absent.
  void trim(std::size_t blocks);
  /// Gives the page of a block back, which must be absent: its rows are nowhere from then on.
  void drop_page(std::size_t block);

  // Pages below the host.

  /// Whether pages may be below the host: of a file, or adopted ones alone.
  [[nodiscard]] bool has_mover() const noexcept { return mover_ != nullptr; }
  /// Whether the rows of a block are in the store alone.
  [[nodiscard]] bool is_away(std::size_t block) const noexcept {
    return block < stored_.size() && stored_[block] != offload::StoredPage::none &&
           host_[block] == nullptr;
  }
  [[nodiscard]] std::size_t away_pages() const noexcept { return away_; }
  /// Blocks that a store has in chunks, and the lease of these: it is shared with forks, and
  /// ends when the last of them has closed.
  struct AdoptedBlocks {
    std::span<const offload::StoredPlace> places;
    std::size_t blocks_of_chunk = 0;
    std::shared_ptr<const tiers::ChunkLease> lease;
  };
  /// Has blocks that a store has, and that stay there: all are away. There must be no block yet,
  /// and a mover of pages. Errors: out_of_memory.
  Status adopt(const AdoptedBlocks& adopted);
  /// A block that is to come to the host.
  struct Arrival {
    LayerRows* rows = nullptr;
    std::uint32_t block = 0;
    Status status = {};     ///< the store's error, if the block was asked for and has not come
    bool was_read = false;  ///< it has come from the store; else another sequence had it here

    [[nodiscard]] bool has_come() const noexcept { return !rows->is_away(block); }
  };
  /// Notes that blocks are wanted, and adds those that are away, each once.
  void list_away(std::span<const std::uint32_t> blocks, std::vector<Arrival>& arrivals);
  /// Reads the blocks that have not come, which are of layers of one runtime, in as few batches as
  /// they make. Blocks that another sequence has on the host are shared. Errors: out_of_memory
  /// naming host.memory; that of the first block that has failed. One more batch is read after an
  /// error. Blocks that have come stay, and those that have not are away as before.
  static Status bring(std::span<Arrival> arrivals);
  /// Returns how many of them were read.
  [[nodiscard]] static std::uint64_t count_read(std::span<const Arrival> arrivals) noexcept {
    return static_cast<std::uint64_t>(std::ranges::count(arrivals, true, &Arrival::was_read));
  }

  /// The first block with rows that the store could not give back, or the first of its chunk; once
  /// the lease of adopted blocks has ended, the first of them that is away; none where all rows can
  /// be read.
  [[nodiscard]] std::optional<std::uint32_t> first_lost() const;

  /// A page that may leave. A page with a greater `wanted` was wanted later.
  struct IdlePage {
    LayerRows* rows = nullptr;
    std::uint32_t block = 0;
    std::uint64_t wanted = 0;
    std::uint32_t region = 0;  ///< of the host's pages, that it lies in
  };
  /// Adds the blocks among the first `blocks` that are on the host, and that are not pinned there;
  /// where pages can go nowhere, those that were adopted. Adopted pages whose lease has ended count
  /// as pages of this process from then on.
  void list_idle(std::size_t blocks, std::vector<IdlePage>& idle);
  struct Departure {
    std::size_t left = 0;     ///< pages
    std::size_t written = 0;  ///< of these, that the store did not have
  };
  /// Writes pages to the store, if they are not there, and gives up their host memory. All must be
  /// idle, of quiesced layers, of one runtime. Errors: those of the store, where no page has left.
  static Result<Departure> send_away(std::span<const IdlePage> pages);
  /// Adds up to `count` pages, first those of the oldest blocks, that were never copied: of the
  /// first `blocks`, whose rows have to be on the host.
  void list_uncopied(std::size_t blocks, std::size_t count, std::vector<IdlePage>& pages);
  /// Starts to copy pages of one runtime to the store, where send_away() will find them. Nobody
  /// waits. Returns how many: none where the store is busy.
  static std::size_t copy(std::span<const IdlePage> pages);
  /// The block will be written: the store's copy of it becomes stale. The block must be on the
  /// host.
  void forget_stored(std::size_t block);

  [[nodiscard]] std::size_t blocks() const noexcept { return places_.size(); }
  [[nodiscard]] BlockPlace place(std::size_t block) const noexcept { return places_[block]; }
  [[nodiscard]] bool absent(std::size_t block) const noexcept {
    return places_[block] == BlockPlace::absent;
  }
  [[nodiscard]] std::byte* on_device(std::size_t block) const noexcept { return device_[block]; }

  /// Gives an absent block its memory.
  void put(std::size_t block, std::byte* slot, BlockPlace place);
  /// The block's memory stays, for another reason.
  void keep_as(std::size_t block, BlockPlace place) noexcept { places_[block] = place; }
  /// Returns the memory of a block, which is absent from then on.
  [[nodiscard]] std::byte* take_out(std::size_t block);
  /// Gives the memory of a block back to its pool. An absent block stays as it is.
  void release(std::size_t block);

  /// Memory of blocks that went, which copies under way may still write: for the next refills.
  std::vector<std::byte*> spare_slots;
  void release_spare_slots();

  /// Makes sure that no other sequence shares a block's page. All work that reads the page must be
  /// done with it. Errors: out_of_memory.
  Status own(std::size_t block);
  [[nodiscard]] bool is_shared(std::size_t block) const;

  /// Shares all pages of another layer. This one must be empty. Errors: out_of_memory.
  Status share(const LayerRows& other);

  // Tables as ops read them.
  [[nodiscard]] BlockTable device_table() const noexcept { return table(device_.data()); }
  /// The device's blocks, for work whose arguments are read on the host.
  [[nodiscard]] BlockTable device_blocks() const noexcept { return table(device_.host_data()); }
  /// Enqueues what has changed of device_table().
  [[nodiscard]] Status flush(Queue& queue) {
    return device_.flush(queue).map([](Ticket) {});
  }
  void touch_table() { device_.touch_all(); }

  /// Blocks up to the first that is not resident, and from the last one on: [begin, end) are the
  /// cache's business.
  [[nodiscard]] TokenRange cacheable_positions() const noexcept;
  /// Whether the first `blocks` are all resident.
  [[nodiscard]] bool all_resident(std::size_t blocks) const noexcept;
  /// Whether none of the first `blocks` is on the host alone. Blocks that have no room yet are not.
  [[nodiscard]] bool all_on_device(std::size_t blocks) const noexcept;

  /// Adds to `stores` how rows of `source`, which are those of `tokens`, are stored into the device
  /// blocks that there are of them.
  void list_device_stores(const KvTensors& source, TokenRange tokens,
                          std::vector<StoreRows>& stores) const;
  /// Adds to `stores` how rows of `source` are stored into pages: `all`, or those without a device
  /// block.
  void list_host_stores(const KvTensors& source, TokenRange tokens, bool all,
                        std::vector<StoreRows>& stores) const;
  /// Adds to `extents` how the rows of `tokens` get from their device blocks, where they have one,
  /// into their pages.
  void list_host_copies(TokenRange tokens, std::vector<CopyExtent>& extents) const;

  /// Where a row lies in its block.
  [[nodiscard]] std::size_t row_offset(std::size_t head, std::size_t position) const noexcept;

  /// Gives all pages back.
  void close();

  LayerTickets tickets;
  std::size_t first_window_block = 0;  ///< blocks before it have passed the window

 private:
  friend class HostRows;
  using Page = offload::PageMover::Page;

  [[nodiscard]] std::byte* on_host(std::size_t block) const noexcept { return host_[block]; }
  [[nodiscard]] BlockTable host_table() const noexcept { return table(host_.data()); }
  /// Notes that the store did not give a block back, and has its chunk dropped, if it is adopted.
  void note_lost(std::uint32_t block, const Error& why);
  void forget_pages_from(std::size_t block);
  /// A block that the store has is there alone, as far as this sequence goes.
  void leave_host(std::size_t block);
  [[nodiscard]] BlockTable table(std::byte* const* blocks) const noexcept;
  [[nodiscard]] StoreRows store_of(const KvTensors& source, TokenRange all, TokenRange some,
                                   Tier tier) const noexcept;
  /// Calls for each run of tokens whose blocks all are absent from the device, or all are there.
  template <typename Call>
  void for_each_run(TokenRange tokens, bool absent, Call call) const;
  /// Returns the end of the longest run of tokens [position, ...), up to `end`, whose blocks all
  /// have device memory, or all have none.
  [[nodiscard]] std::size_t run_end(std::size_t position, std::size_t end) const noexcept;

  const RuntimePlan& plan_;
  Backend& backend_;
  BlockPool& device_blocks_;
  HostTier& host_tier_;
  offload::PageMover* mover_;  ///< null = no store
  offload::PageTable pages_;
  PointerTable host_{Tier::host};
  PointerTable device_{Tier::device};
  std::vector<BlockPlace> places_;

  // With a store, of each block.
  std::vector<offload::StoredPage> stored_;
  std::vector<std::uint32_t> keepers_;  ///< HostRows that keep it on the host
  std::vector<std::uint64_t> wanted_;   ///< when it was wanted last, by HostTier::count_wanted()
  std::size_t away_ = 0;
  std::size_t next_copied_ = 0;  ///< block: copy() has taken those before it
  std::optional<std::uint32_t> first_lost_;
  std::shared_ptr<const tiers::ChunkLease> lease_;  ///< of the chunks that blocks were adopted of
  std::size_t blocks_of_chunk_ = 0;
};

}  // namespace terrace
