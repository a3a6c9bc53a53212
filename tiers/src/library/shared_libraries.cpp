// The libraries of the process: one for each store.
#include <algorithm>
#include <map>

#include "chunk_catalogue.hpp"
#include "store_contents.hpp"
#include "tenant_numbers.hpp"
#include "terrace/tiers/chunk_library.hpp"

namespace terrace::tiers {
namespace {

constexpr std::uint64_t chunks_most = 65'536;
constexpr std::uint64_t chunks_least = 64;

struct Libraries {
  std::mutex mutex;
  std::map<const Store*, std::weak_ptr<ChunkLibrary>> by_store;

  /// A library has its store, so that no other one can come to the same address.
  std::shared_ptr<ChunkLibrary> find(const Store& store) const {
    const auto known = by_store.find(&store);
    return known == by_store.end() ? nullptr : known->second.lock();
  }
  void keep(const std::shared_ptr<ChunkLibrary>& library) {
    std::erase_if(by_store, [](const auto& known) { return known.second.expired(); });
    by_store.insert_or_assign(library->store().get(), library);
  }
};

Libraries& libraries() {
  static Libraries all;
  return all;
}

/// A chunk has two pages at least.
std::uint64_t chunks_for(const Store& store) {
  return std::clamp(store.usage().pages_max / 2, chunks_least, chunks_most);
}

}  // namespace

Result<std::shared_ptr<ChunkLibrary>> ChunkLibrary::make(const ChunkLibraryOptions& options) {
  if (options.store == nullptr) return fail(Errc::invalid_argument, "a library needs a store");
  DirectoryOptions directory{
      .chunks_max = options.chunks_max > 0 ? options.chunks_max : chunks_for(*options.store),
      .tenants_max = tenants_max,
      .seed = options.seed};
  directory.copies_max = directory.chunks_max;  // of one tier
  directory.leases_max = directory.copies_max;
  TERRACE_ASSIGN(auto catalogue, ChunkCatalogue::create(directory));
  return std::shared_ptr<ChunkLibrary>(new ChunkLibrary(options, std::move(catalogue)));
}

Result<std::shared_ptr<ChunkLibrary>> ChunkLibrary::share(const ChunkLibraryOptions& options) {
  Libraries& all = libraries();
  const std::lock_guard lock(all.mutex);
  if (options.store != nullptr) {
    if (auto library = all.find(*options.store)) {
      library->attach(options.remote);
      return library;
    }
  }
  TERRACE_ASSIGN(auto library, make(options));
  all.keep(library);
  return library;
}

Result<std::shared_ptr<ChunkLibrary>> ChunkLibrary::open_file(const offload::TierStoreOptions& file,
                                                              ChunkLibraryOptions options) {
  Libraries& all = libraries();
  const std::lock_guard lock(all.mutex);
  std::optional<std::vector<PageKey>> pages;
  offload::TierStoreOptions listing = file;
  listing.on_opened = [&](std::span<const PageKey> saved) {
    pages.emplace(saved.begin(), saved.end());
  };
  TERRACE_ASSIGN(options.store, offload::open_tier_store(listing));
  if (auto library = all.find(*options.store)) {
    library->attach(options.remote);
    return library;
  }
  TERRACE_ASSIGN(auto library, make(options));
  if (pages) TERRACE_TRY(library->take_stock(*pages));
  all.keep(library);
  return library;
}

std::shared_ptr<ChunkLibrary> ChunkLibrary::of(const Store& store) {
  Libraries& all = libraries();
  const std::lock_guard lock(all.mutex);
  return all.find(store);
}

Status ChunkLibrary::take_stock(std::span<const PageKey> pages) {
  knows_all_ = true;
  if (pages.empty()) return {};
  knows_namespaces_ = false;
  offload::StoreCalls calls(store_, deadline_);
  TERRACE_ASSIGN(StoreContents contents, read_contents(calls, pages));
  const std::lock_guard lock(mutex_);
  const Digest unknown{};
  for (const Manifest& chunk : contents.chunks) {
    catalogue_->take_up({.root = unknown,
                         .tenant = tenants_->number_of(chunk.owner()),
                         .key = chunk.chunk(),
                         .bytes = chunk.bytes()},
                        &chunk, TimePoint{});
  }
  catalogue_->to_erase.insert(catalogue_->to_erase.end(), contents.rest.begin(),
                              contents.rest.end());
  // Room that is not free by the deadline is free a little later.
  const Result<StoreTicket> erasing = start_erasing();
  if (erasing && !contents.rest.empty()) static_cast<void>(erasing->done.wait(deadline_));
  return {};
}

}  // namespace terrace::tiers
