// Transfers by threads that read and write and wait: where the system has no io_uring for a
// process.
#pragma once

#include <memory>

#include "terrace/offload/file_queue.hpp"

namespace terrace::offload {

/// Errors: out_of_memory: the system has no threads left.
[[nodiscard]] Result<std::unique_ptr<FileQueue>> open_threaded_queue(
    const StorageFile& file, const FileQueueOptions& options);

}  // namespace terrace::offload
