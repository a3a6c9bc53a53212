#include "host_tier.hpp"

#include <algorithm>
#include <utility>

#include "daemon_tier.hpp"
#include "remote_tier.hpp"
#include "terrace/offload/tier_store.hpp"

namespace terrace {

HostTier::HostTier(Backend& backend, const RuntimePlan& plan) noexcept
    : backend_(backend),
      pages_limit_(plan.options.below_host.host_bytes / plan.block_bytes()),
      usual_read_rate_(plan.options.below_host.read_rate) {}

void HostTier::note_read(std::uint64_t bytes, TimePoint begin, TimePoint end) {
  waited_.fetch_add((end - begin).count(), std::memory_order_relaxed);
  // Reads of few pages say how long one takes to begin.
  constexpr std::uint64_t bytes_of_a_rate = std::uint64_t{1} << 20;
  if (bytes >= bytes_of_a_rate) reads_.note(static_cast<double>(bytes), end - begin, end);
}

std::optional<double> HostTier::read_seconds(std::uint64_t bytes, TimePoint now) const {
  const auto amount = static_cast<double>(bytes);
  if (const auto measured = reads_.seconds_for(amount, now)) return measured;
  if (usual_read_rate_ > 0) return amount / usual_read_rate_;
  return std::nullopt;
}

Result<HostTier::OpenedStore> HostTier::open_store(const RuntimePlan& plan) {
  OpenedStore opened{.store = plan.options.below_host.store,
                     .owner = plan.options.below_host.owner};
  if (plan.keeps_everything()) return opened;
  TERRACE_ASSIGN(opened.daemon, open_daemon_tier(plan));
  TERRACE_TRY(open_below(plan, opened));
  return opened;
}

Status HostTier::open_below(const RuntimePlan& plan, OpenedStore& opened) {
  const RowsBelowHost& below = plan.options.below_host;
  tiers::ChunkLibraryOptions library{
      .store = below.store, .deadline = plan.deadline(), .seed = plan.options.seed};
  TERRACE_ASSIGN(library.remote, open_remote_tier(plan.options));
  if (below.store != nullptr) {
    if (!plan.options.prefixes.model.empty() && opened.daemon == nullptr) {
      TERRACE_ASSIGN(opened.chunks, tiers::ChunkLibrary::share(library));
    }
    return {};
  }
  if (below.file.empty()) return {};
  auto chunks = tiers::ChunkLibrary::open_file(
      {.path = below.file, .bytes = below.file_bytes, .page_bytes = plan.block_bytes()}, library);
  if (!chunks) return tl::unexpected(chunks.error().while_doing("tier.nvme"));
  opened.chunks = std::move(*chunks);
  opened.store = opened.chunks->store();
  // Other runtimes of the process may have the same file.
  static std::atomic<std::uint64_t> runtimes{0};
  opened.owner = runtimes.fetch_add(1, std::memory_order_relaxed);
  return {};
}

std::function<bool(std::uint64_t bytes)> HostTier::room_maker(const OpenedStore& opened) {
  return [store = opened.store.get(), chunks = opened.chunks](std::uint64_t bytes) {
    // Another runtime may keep chunks in the store.
    const auto library = chunks != nullptr ? chunks : tiers::ChunkLibrary::of(*store);
    return library != nullptr && library->make_room(bytes) > 0;
  };
}

namespace {

/// The size of regions that are to come back: of many small ones, some soon have no page in use.
std::size_t small_region(const Backend& backend) {
  constexpr std::size_t most = std::size_t{16} << 20;
  return std::min(most, backend.memory(Tier::host).limit / 64);
}

}  // namespace

Result<std::unique_ptr<HostTier>> HostTier::open(const RuntimePlan& plan, Backend& backend) {
  TERRACE_ASSIGN(OpenedStore opened, open_store(plan));
  std::unique_ptr<HostTier> tier(new HostTier(backend, plan));
  const bool has_store = opened.store != nullptr || opened.daemon != nullptr;
  offload::HostPageOptions pages{.page_bytes = plan.block_bytes()};
  if (has_store) pages.region_bytes = small_region(backend);
  TERRACE_ASSIGN(tier->pages_, offload::HostPagePool::create(backend, pages));
  if (has_store) {
    tier->mover_ = std::make_unique<offload::PageMover>(
        *tier->pages_, offload::PageMoverOptions{.store = opened.store,
                                                 .owner = opened.owner,
                                                 .deadline = plan.deadline(),
                                                 .make_room = room_maker(opened)});
  }
  tier->chunks_ = opened.daemon != nullptr ? std::move(opened.daemon) : std::move(opened.chunks);
  tier->follow_limit();
  return tier;
}

void HostTier::follow_limit() noexcept {
  if (!has_store()) return;
  // Indexes and buffers need memory, too. Where they need more than the rest, rows leave.
  const std::size_t bytes = backend_.memory(Tier::host).limit / 4 * 3;
  pages_->set_bytes_max(bytes);
  filling_pages_ = std::min(pages_limit_, bytes / pages_->page_bytes()) / 4 * 3;
}

}  // namespace terrace
