// Puts a batch of copies on a stream: as one call if the driver has one for it, and if the stream
// is not the legacy default stream.
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <vector>

#include "terrace/core/queue.hpp"

namespace terrace::offload {

/// Reused: its lists keep their capacity, so that steady work allocates nothing.
class CopyBatch {
 public:
  /// Host memory is locked in pieces that end at multiples of `piece_bytes`: no copy may cross one.
  explicit CopyBatch(std::size_t piece_bytes) noexcept : piece_bytes_(piece_bytes) {}

  /// Enqueues all copies of `extents`.
  [[nodiscard]] Status enqueue(std::span<const CopyExtent> extents, cudaStream_t stream);

 private:
  void cut(const CopyExtent& extent);
  [[nodiscard]] Status enqueue_one_by_one(cudaStream_t stream);

  std::size_t piece_bytes_;
  bool batches_ = true;  ///< until the driver says that it has none
  std::vector<void*> targets_;
  std::vector<const void*> sources_;
  std::vector<std::size_t> sizes_;
};

}  // namespace terrace::offload
