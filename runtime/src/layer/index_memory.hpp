// The memory of one layer's retrieval index. The host's copy is the truth: built and extended
// there. The device reads either a resident copy, to which changed chunks are uploaded, or a stage
// into which the live chunks are streamed one layer ahead (index.residency).
//
// Indexes on the host may share memory: a note of an index before it changes, a fork. The index
// that changes takes memory of its own first (copy on write), for the parts that it changes.
#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>
#include <cstdint>
#include <vector>

#include "rows/pointer_table.hpp"
#include "terrace/core/backend.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace {

/// A part of an index that is about to be written.
struct IndexPart {
  TokenRange chunks;        ///< numbers of chunks
  bool with_fixed = false;  ///< the fixed part, too
  /// Whether the bytes of the chunks are still needed. Those of the fixed part always are.
  bool keeps_chunks = true;
};

/// Chunks of one tier, grown slab by slab so that neighbours are contiguous and copy in one piece.
///
/// Threads  one at a time; memories that share slabs may each have a thread of their own
class IndexMemory {
 public:
  explicit IndexMemory(Tier tier) noexcept : tier_(tier), chunks_(tier) {}

  /// Chunks of a slab, as a rule: the unit in which shared memory is copied.
  [[nodiscard]] static std::size_t slab_chunks(const IndexLayout& layout) noexcept;

  /// Makes room for `chunk_count` chunks and the fixed part.
  /// Errors: out_of_memory; what was there stays as it was.
  [[nodiscard]] Status reserve(Backend& backend, const IndexLayout& layout,
                               std::size_t chunk_count);

  /// Gives up memory for chunks from `chunk_count` on, as far as they fill whole slabs. No work may
  /// read or write them.
  void trim(const IndexLayout& layout, std::size_t chunk_count) noexcept;

  /// Has `other`, which is empty, hold the same bytes in the same memory, on the host. Nothing may
  /// be written to shared memory: see own(). Errors: out_of_memory; nothing is shared then.
  [[nodiscard]] Status share_with(IndexMemory& other, Backend& backend);

  /// Whether another memory holds some of a part, too.
  [[nodiscard]] bool shares(const IndexLayout& layout, const IndexPart& part) const noexcept;

  /// Takes memory of its own for what it shares of a part. No work may write the part. Work that
  /// still reads the old memory may go on until forget_old_copies().
  /// Errors: out_of_memory; the rest of the part stays shared.
  [[nodiscard]] Status own(Backend& backend, const IndexLayout& layout, const IndexPart& part);

  /// Frees what the memory has moved away from. No work may read it any more.
  void forget_old_copies() noexcept;

  [[nodiscard]] std::byte* fixed() const noexcept {
    return fixed_ ? fixed_->buffer.data() : nullptr;
  }
  [[nodiscard]] std::byte* chunk(std::size_t i) const noexcept { return chunks_[i]; }
  [[nodiscard]] std::size_t chunk_count() const noexcept { return chunk_count_; }
  [[nodiscard]] PointerTable& table() noexcept { return chunks_; }
  [[nodiscard]] IndexView view(const IndexLayout& layout, std::size_t first_token) const noexcept {
    return {.fixed = fixed(),
            .chunks = chunks_.data(),
            .chunk_tokens = layout.chunk_tokens,
            .first_token = first_token};
  }

  void reset() noexcept;

 private:
  struct Slab : boost::intrusive_ref_counter<Slab> {
    explicit Slab(Buffer memory) noexcept : buffer(std::move(memory)) {}
    Buffer buffer;
  };
  using SharedSlab = boost::intrusive_ptr<Slab>;

  [[nodiscard]] Result<SharedSlab> allocate(Backend& backend, std::size_t bytes) const;
  /// Calls `visit` for each slab that the part lies in and that is shared, with its first chunk,
  /// while `visit` returns true.
  template <typename Visit>
  void visit_shared(const IndexLayout& layout, TokenRange chunks, Visit visit) const;

  Tier tier_;
  SharedSlab fixed_;
  std::vector<SharedSlab> slabs_;
  std::vector<SharedSlab> old_;  ///< that work may still read
  PointerTable chunks_;
  std::size_t chunk_count_ = 0;
  bool has_shared_ = false;  ///< has been shared: some slabs may still be
};

/// Appends the extents that copy chunks [first, last) and returns their bytes.
std::size_t append_chunk_copies(const IndexLayout& layout, const IndexMemory& source,
                                const IndexMemory& target, TokenRange chunks,
                                std::vector<CopyExtent>& extents);

}  // namespace terrace
