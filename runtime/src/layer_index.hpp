// The memory of one layer's retrieval index. The host's copy is the truth: built and extended
// there. The device reads either a resident copy, to which changed chunks are uploaded, or a stage
// into which the live chunks are streamed one layer ahead (index.residency).
#pragma once

#include <cstdint>
#include <vector>

#include "pointer_table.hpp"
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

  /// Gives up memory for chunks behind `chunk_count`, as far as whole slabs are of these. Nothing
  /// may read or write them.
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

struct LayerIndex {
  /// Where what stands for the token at `position` begins to remember tokens before it; `position`
  /// where nothing does that reaches beyond it.
  [[nodiscard]] std::size_t remembered_from(std::size_t position,
                                            std::size_t indexed_together) const noexcept;
  /// Returns where each batch that is not coded before `end` ends.
  [[nodiscard]] std::vector<std::size_t> ends_behind(std::size_t end) const;
  /// Forgets what is coded from `end` on.
  void end_at(std::size_t end) noexcept;

  IndexMemory host{Tier::host};
  IndexMemory device{Tier::device};  ///< used when the index is resident on the device
  TokenRange tokens;                 ///< coded; empty = no index yet
  std::vector<std::size_t> batches;  ///< where the build and each later batch begin
  /// Ascending: ends of batches whose coding failed. They are coded again before anything is.
  std::vector<std::size_t> lost_ends;
  std::size_t coded_before = 0;  ///< end of `tokens` before the last extension
  std::size_t trained = 0;       ///< tokens the codebook was trained on
  std::size_t fresh_end = 0;     ///< end of `tokens` when the index was last built
  bool stale = false;            ///< the device's copy may lack something: upload all of it
  bool building = false;         ///< a build is enqueued and has not been waited for
  TokenRange hidden_by;          ///< prompt whose compute is to hide the build; empty = none
  Ticket coded;                  ///< last build or extension, on the cluster queue
  Ticket uploaded;               ///< last upload, on the index queue

  // Written by the build on the cluster queue, read after `coded` is done.
  Status build_status;
  BuildReport report;
  TimePoint rows_arrived{};  ///< when the host had the rows to build from
  TimePoint build_begin{};
  TimePoint build_end{};
};

}  // namespace terrace
