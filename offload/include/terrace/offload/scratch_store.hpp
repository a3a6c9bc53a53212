// A store for pages that are not needed once the process has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "terrace/core/store.hpp"

namespace terrace::offload {

struct ScratchStoreOptions {
  std::string path;                   ///< of a file that is made, and removed when the store goes
  std::uint64_t bytes = 0;            ///< of the file, which are taken from the disk at once
  std::uint64_t page_bytes = 65'536;  ///< of the smallest pages that will fill it
};

/// Opens a store in a file of a disk. Where this process already has it open, all callers share the
/// one store, and make sure that their keys differ. Where a process was killed before it could
/// remove its file, the file of that name is made anew; no other file is ever overwritten.
///
/// Threads  any
/// Errors   invalid_argument: no size; unsupported: the path is of something else than a file;
///          those of NvmeStore::open, of a file that is there and is no scratch store, too
[[nodiscard]] Result<std::shared_ptr<Store>> open_scratch_store(const ScratchStoreOptions& options);

}  // namespace terrace::offload
