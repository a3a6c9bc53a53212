#include "copy_batch.hpp"

#include <algorithm>

#include "cuda_memory.hpp"
#include "support/check.hpp"

namespace terrace::offload {
namespace {

/// The driver's call for many copies that go after all work of the stream before them.
cudaError_t copy_at_once(std::span<void* const> targets, std::span<const void* const> sources,
                         std::span<const std::size_t> sizes, cudaStream_t stream) {
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;  // the attributes are those of all copies
#if CUDART_VERSION < 13000
  // CUDA 12.8 and 12.9 take no const arguments, though they write only which copy failed.
  std::size_t failed = 0;
  return cudaMemcpyBatchAsync(const_cast<void**>(targets.data()),
                              const_cast<void**>(sources.data()),
                              const_cast<std::size_t*>(sizes.data()), sizes.size(), &attributes,
                              &first, 1, &failed, stream);
#else
  return cudaMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(), sizes.size(),
                              &attributes, &first, 1, stream);
#endif
}

/// Whether a stream is the legacy default stream, which PyTorch's current stream is unless another
/// one was chosen. The driver takes no batch on it.
bool is_default(cudaStream_t stream) { return stream == nullptr || stream == cudaStreamLegacy; }

}  // namespace

void CopyBatch::cut(const CopyExtent& extent) {
  for (std::size_t at = 0; at < extent.bytes;) {
    const std::size_t bytes =
        std::min(bytes_to_piece_end(extent.target + at, extent.bytes - at, piece_bytes_),
                 bytes_to_piece_end(extent.source + at, extent.bytes - at, piece_bytes_));
    targets_.push_back(extent.target + at);
    sources_.push_back(extent.source + at);
    sizes_.push_back(bytes);
    at += bytes;
  }
}

Status CopyBatch::enqueue(std::span<const CopyExtent> extents, cudaStream_t stream) {
  targets_.clear();
  sources_.clear();
  sizes_.clear();
  for (const CopyExtent& extent : extents) cut(extent);
  if (sizes_.size() < 2 || !batches_ || is_default(stream)) return enqueue_one_by_one(stream);
  TERRACE_ASSIGN(batches_, cuda::check_supported(copy_at_once(targets_, sources_, sizes_, stream),
                                                 "copying a batch"));
  return batches_ ? Status{} : enqueue_one_by_one(stream);
}

Status CopyBatch::enqueue_one_by_one(cudaStream_t stream) {
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    TERRACE_TRY(
        cuda::check(cudaMemcpyAsync(targets_[i], sources_[i], sizes_[i], cudaMemcpyDefault, stream),
                    "copying"));
  }
  return {};
}

}  // namespace terrace::offload
