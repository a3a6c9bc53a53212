// The store of the host's pages in a file of a disk: scratch pages, which nobody needs once the
// process has ended, and saved ones, which a later process reads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "terrace/core/store.hpp"

namespace terrace::offload {

struct TierStoreOptions {
  std::string path;                   ///< of the file
  std::uint64_t bytes = 0;            ///< of the file, which are taken from the disk at once
  std::uint64_t page_bytes = 65'536;  ///< of the smallest pages that will fill it
  /// Called once with the keys of the saved pages that the file has, in any order, where this call
  /// has opened the file; where the process had it open already, it is not called.
  std::function<void(std::span<const PageKey>)> on_opened = {};
};

/// First halves of keys of scratch pages are below it, those of saved pages are not.
inline constexpr std::uint64_t scratch_owners = std::uint64_t{1} << 16;

/// Opens a store in a file of a disk. Where this process already has it open, all callers share the
/// one store, and make sure that their keys differ. Scratch pages that a killed process has left
/// are erased. When the store goes, its file goes, too, unless it has saved pages. A file with
/// saved pages keeps its size, whatever size is asked for.
///
/// Threads  any
/// Errors   invalid_argument: no size; unsupported: the path is of something else than a file;
///          those of NvmeStore::open, of a file that is there and is no such store, too
[[nodiscard]] Result<std::shared_ptr<Store>> open_tier_store(const TierStoreOptions& options);

}  // namespace terrace::offload
