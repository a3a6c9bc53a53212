#include "terrace/offload/tier_store.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "terrace/offload/nvme_store.hpp"

namespace terrace::offload {
namespace {

namespace fs = std::filesystem;

/// The stores of the process, by the path that they were opened with.
struct OpenStores {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Store>> by_path;
};

OpenStores& open_stores() {
  static OpenStores stores;
  return stores;
}

void remove_file(const std::string& path) noexcept {
  std::error_code gone;
  fs::remove(path, gone);
}

/// Erases scratch pages of a process that has ended. Pages that cannot be erased go with the file.
void erase_scratch(Store& store, std::span<const PageKey> keys, Duration patience) {
  std::vector<PageRequest> requests;
  for (const PageKey& key : keys) requests.push_back({.verb = PageVerb::erase, .key = key});
  const Result<StoreTicket> ticket = store.submit(requests);
  if (!ticket || ticket->done.wait(patience)) return;
  store.cancel(*ticket);
  static_cast<void>(ticket->done.wait(patience));
}

/// The store, and the keys of its saved pages.
struct OpenedTier {
  std::unique_ptr<NvmeStore> store;
  std::vector<PageKey> saved;
};

Result<OpenedTier> open_file(NvmeStoreOptions options) {
  std::vector<PageKey> scratch;
  std::vector<PageKey> saved;
  options.on_found = [&](const PageKey& key) {
    (key.high < scratch_owners ? scratch : saved).push_back(key);
  };
  TERRACE_ASSIGN(auto store, NvmeStore::open(options));
  if (!scratch.empty()) erase_scratch(*store, scratch, options.queue.patience);
  return OpenedTier{std::move(store), std::move(saved)};
}

/// Whether a file that was closed is worth nothing.
bool has_scratch_alone(const NvmeStoreOptions& options) {
  const Result<OpenedTier> opened = open_file(options);
  return opened && opened->saved.empty();
}

Result<std::shared_ptr<Store>> make_store(const TierStoreOptions& options) {
  const std::uint64_t bytes = options.bytes / StorageFile::alignment * StorageFile::alignment;
  if (bytes == 0) {
    return fail(Errc::invalid_argument, "{}: {} bytes; give the size of the file", options.path,
                options.bytes);
  }
  std::error_code none;
  const fs::file_status there = fs::status(options.path, none);
  if (fs::exists(there) && !fs::is_regular_file(there)) {
    return fail(Errc::unsupported, "{}: no file; name a file for pages of the host", options.path);
  }
  NvmeStoreOptions chosen;
  chosen.file.path = options.path;
  chosen.file.bytes = bytes;
  chosen.contents = "pages of the host";
  chosen.pages_max = bytes / std::max<std::uint64_t>(options.page_bytes, StorageFile::alignment);
  TERRACE_ASSIGN(OpenedTier opened, open_file(chosen));
  const NvmeStoreState found = opened.store->state();
  if (opened.saved.empty() && !found.created && found.health.lost == 0) {
    // A file without pages that is worth nothing, and may have another size. One that has lost its
    // pages stays: its counts are all that says so.
    opened.store.reset();
    remove_file(options.path);
    TERRACE_ASSIGN(opened, open_file(chosen));
  }
  if (options.on_opened) options.on_opened(opened.saved);
  return std::shared_ptr<Store>(opened.store.release(), [chosen](Store* mine) {
    const bool has_pages = mine->usage().pages > 0;
    delete mine;  // NOLINT(cppcoreguidelines-owning-memory): a deleter
    if (!has_pages || has_scratch_alone(chosen)) remove_file(chosen.file.path);
  });
}

}  // namespace

Result<std::shared_ptr<Store>> open_tier_store(const TierStoreOptions& options) {
  OpenStores& stores = open_stores();
  const std::lock_guard lock(stores.mutex);
  std::weak_ptr<Store>& known = stores.by_path[options.path];
  if (auto store = known.lock()) return store;
  TERRACE_ASSIGN(auto store, make_store(options));
  known = store;
  return store;
}

}  // namespace terrace::offload
