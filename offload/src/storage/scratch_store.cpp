#include "terrace/offload/scratch_store.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "terrace/offload/nvme_store.hpp"

namespace terrace::offload {
namespace {

namespace fs = std::filesystem;

/// The scratch stores of the process, by the path that they were opened with.
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

Result<std::shared_ptr<Store>> make_store(const ScratchStoreOptions& options) {
  const std::uint64_t bytes = options.bytes / StorageFile::alignment * StorageFile::alignment;
  if (bytes == 0) {
    return fail(Errc::invalid_argument, "{}: {} bytes; give the size of a scratch file",
                options.path, options.bytes);
  }
  std::error_code none;
  const fs::file_status there = fs::status(options.path, none);
  if (fs::exists(there) && !fs::is_regular_file(there)) {
    return fail(Errc::unsupported, "{}: no file; name a file for scratch pages", options.path);
  }
  NvmeStoreOptions chosen;
  chosen.file.path = options.path;
  chosen.file.bytes = bytes;
  chosen.contents = "pages of a process";
  chosen.pages_max = bytes / std::max<std::uint64_t>(options.page_bytes, StorageFile::alignment);
  TERRACE_ASSIGN(auto store, NvmeStore::open(chosen));
  if (!store->state().created) {
    // Pages of a process that has ended: no other process may have the file open.
    store.reset();
    remove_file(options.path);
    TERRACE_ASSIGN(store, NvmeStore::open(chosen));
  }
  return std::shared_ptr<Store>(store.release(), [path = options.path](Store* mine) {
    delete mine;  // NOLINT(cppcoreguidelines-owning-memory): a deleter
    remove_file(path);
  });
}

}  // namespace

Result<std::shared_ptr<Store>> open_scratch_store(const ScratchStoreOptions& options) {
  OpenStores& stores = open_stores();
  const std::lock_guard lock(stores.mutex);
  std::weak_ptr<Store>& known = stores.by_path[options.path];
  if (auto store = known.lock()) return store;
  TERRACE_ASSIGN(auto store, make_store(options));
  known = store;
  return store;
}

}  // namespace terrace::offload
