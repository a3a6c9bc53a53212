// Transfers by io_uring: one system call for a batch, and none for each that has ended.
#pragma once

#include <memory>

#include "terrace/offload/file_queue.hpp"

namespace terrace::offload {

/// Errors: unsupported, with the system's reason: no io_uring for this process, or an old one.
[[nodiscard]] Result<std::unique_ptr<FileQueue>> open_ring_queue(const StorageFile& file,
                                                                 const FileQueueOptions& options);

}  // namespace terrace::offload
