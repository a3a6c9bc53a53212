// A lease of chunks: while it lives, their pages stay where they are, found or not.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "terrace/core/store.hpp"
#include "terrace/tiers/chunk_key.hpp"
#include "terrace/tiers/manifest.hpp"

namespace terrace::tiers {

/// The chunks of a lease, at the keeper that gave it: the end of this object gives it back.
///
/// Threads  safe from any thread, but for adding
class HeldChunks {
 public:
  HeldChunks() = default;
  HeldChunks(const HeldChunks&) = delete;
  HeldChunks& operator=(const HeldChunks&) = delete;
  virtual ~HeldChunks() = default;

  [[nodiscard]] std::span<const ChunkKey> chunks() const noexcept { return chunks_; }

  /// Whether the chunks stay: the lease of another process may have ended by itself, and what was
  /// not read by then is gone.
  [[nodiscard]] virtual bool is_live() const noexcept = 0;
  /// Returns the store whose pages are the parts of the chunks.
  [[nodiscard]] virtual std::shared_ptr<Store> store() const noexcept = 0;
  /// Returns the bytes of a part. Errors: corrupt; io_error; not_ready; those of the store.
  [[nodiscard]] virtual Result<std::vector<std::byte>> read(const Manifest& manifest,
                                                            const Part& part) = 0;
  /// Says of a chunk why it could not be read, so that look-ups do not find it if it is damaged.
  virtual void drop(const ChunkKey& chunk, const Error& why) = 0;

 protected:
  explicit HeldChunks(std::vector<ChunkKey> chunks) noexcept : chunks_(std::move(chunks)) {}

  std::vector<ChunkKey> chunks_;
};

/// Threads  as HeldChunks
class ChunkLease {
 public:
  ChunkLease() = default;  ///< of no chunk
  explicit ChunkLease(std::unique_ptr<HeldChunks> held) noexcept : held_(std::move(held)) {}

  [[nodiscard]] std::span<const ChunkKey> chunks() const noexcept;
  [[nodiscard]] bool covers(const ChunkKey& key) const noexcept;
  [[nodiscard]] bool is_live() const noexcept { return held_ == nullptr || held_->is_live(); }
  /// Null where the lease is of no chunk and of no keeper.
  [[nodiscard]] HeldChunks* held() const noexcept { return held_.get(); }
  /// Says of a chunk, by its number in chunks(), why it could not be read: HeldChunks::drop.
  void drop(std::size_t number, const Error& why) const;

 private:
  std::unique_ptr<HeldChunks> held_;
};

}  // namespace terrace::tiers
