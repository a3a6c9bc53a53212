// The memory of one layer's retrieval index. The host's copy is the truth: built and extended
// there. The device reads either a resident copy, to which changed chunks are uploaded, or a stage
// into which the live chunks are streamed one layer ahead (index.residency).
#pragma once

#include <cstdint>
#include <vector>

#include "rows/pointer_table.hpp"
#include "terrace/core/backend.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace {

/// Chunks of one tier, grown slab by slab so that neighbours are contiguous and copy in one piece.
class IndexMemory {
 public:
  explicit IndexMemory(Tier tier) noexcept : tier_(tier), chunks_(tier) {}

  /// Makes room for `chunk_count` chunks and the fixed part.
  /// Errors: out_of_memory; what was there stays as it was.
  [[nodiscard]] Status reserve(Backend& backend, const IndexLayout& layout,
                               std::size_t chunk_count);

  /// Gives up memory for chunks from `chunk_count` on, as far as they fill whole slabs. No work may
  /// read or write them.
  void trim(const IndexLayout& layout, std::size_t chunk_count) noexcept;

  /// Takes over what another one of the host holds. Errors: out_of_memory.
  [[nodiscard]] Status copy_from(const IndexMemory& other, Backend& backend,
                                 const IndexLayout& layout);

  [[nodiscard]] std::byte* fixed() const noexcept { return fixed_.data(); }
  [[nodiscard]] std::byte* chunk(std::size_t i) const noexcept { return chunks_[i]; }
  [[nodiscard]] std::size_t chunk_count() const noexcept { return chunk_count_; }
  [[nodiscard]] PointerTable& table() noexcept { return chunks_; }
  [[nodiscard]] IndexView view(const IndexLayout& layout, std::size_t first_token) const noexcept {
    return {.fixed = fixed_.data(),
            .chunks = chunks_.data(),
            .chunk_tokens = layout.chunk_tokens,
            .first_token = first_token};
  }

  void reset() noexcept;

 private:
  Tier tier_;
  Buffer fixed_;
  std::vector<Buffer> slabs_;
  PointerTable chunks_;
  std::size_t chunk_count_ = 0;
};

/// Appends the extents that copy chunks [first, last) and returns their bytes.
std::size_t append_chunk_copies(const IndexLayout& layout, const IndexMemory& source,
                                const IndexMemory& target, TokenRange chunks,
                                std::vector<CopyExtent>& extents);

}  // namespace terrace
