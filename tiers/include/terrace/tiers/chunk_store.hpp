// Chunks in a store: written part by part with the manifest last, so that a chunk whose manifest is
// there is whole; found only while all of its parts are there.
//
//   ChunkStore chunks(store, deadline);
//   TERRACE_TRY(chunks.publish(key, 256, parts));
//   TERRACE_ASSIGN(const ChunkRun run, chunks.find_run(keys));
//   TERRACE_ASSIGN(const auto bytes, chunks.read(run.chunks[0], run.chunks[0].parts()[0]));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "terrace/offload/store_calls.hpp"
#include "terrace/tiers/manifest.hpp"

namespace terrace::tiers {

/// A part of a chunk that is to be published.
struct PartBytes {
  PartName name = {};
  std::vector<std::byte> bytes;
};

/// Returns the bytes of all parts.
[[nodiscard]] std::uint64_t bytes_of(std::span<const PartBytes> parts) noexcept;

/// Chunks that a store has whole, from the front of those that were asked for.
struct ChunkRun {
  std::vector<Manifest> chunks;
  /// Why the run ends before the last chunk: invalid_argument: the next chunk lacks its manifest or
  /// a part; corrupt, unsupported: it is not as it was written; others: it cannot be read now.
  std::optional<Error> end = {};
};

/// A part that is to be read. The manifest has to stay.
struct PartOfChunk {
  const Manifest* manifest = nullptr;
  const Part* part = nullptr;
};

/// Threads  safe from any thread
class ChunkStore {
 public:
  /// Each call waits for the store until the deadline. `writing`: of what is published.
  ChunkStore(std::shared_ptr<Store> store, Duration deadline, BatchOptions writing = {}) noexcept
      : calls_(std::move(store), deadline), writing_(writing) {}

  /// Writes a chunk. A look-up finds all of it, or nothing. Nothing may change the parts
  /// meanwhile, nor while the store is still at them past the deadline.
  ///
  /// Errors   invalid_argument: those of Manifest::create; those of the store: out_of_memory where
  ///          it is full. Parts that were written are erased then
  [[nodiscard]] Result<Manifest> publish(const ChunkKey& chunk, std::uint32_t tokens,
                                         const std::shared_ptr<std::vector<PartBytes>>& parts,
                                         OwnerMark owner = 0);

  /// Returns the manifest of each chunk. Errors: not_ready past the deadline. Errors of a chunk:
  /// those of ChunkRun::end.
  [[nodiscard]] Result<std::vector<Result<Manifest>>> manifests(std::span<const ChunkKey> chunks);

  /// Returns the manifests of the longest run of chunks, from the front, that are whole. A damaged
  /// chunk stays as it is: its pages are the caller's to erase.
  ///
  /// Errors   not_ready past the deadline
  [[nodiscard]] Result<ChunkRun> find_run(std::span<const ChunkKey> chunks);

  /// Returns the bytes of a part, as they were published.
  ///
  /// Errors   corrupt: other bytes; those of the store
  [[nodiscard]] Result<std::vector<std::byte>> read(const Manifest& manifest, const Part& part);

  /// Returns the bytes of parts, of one or of many chunks, read at once.
  ///
  /// Errors   not_ready past the deadline. Errors of a part: as read()
  [[nodiscard]] Result<std::vector<Result<std::vector<std::byte>>>> read_parts(
      std::span<const PartOfChunk> parts);

  /// Returns all parts of a chunk, read at once.
  ///
  /// Errors   as read(); not_ready past the deadline
  [[nodiscard]] Result<std::vector<PartBytes>> read_all(const Manifest& manifest);

  /// Returns the keys of all pages of a chunk, first that of the manifest: in this order they are
  /// erased, so that nobody finds the rest.
  [[nodiscard]] static std::vector<PageKey> pages_of(const ChunkKey& chunk,
                                                     std::span<const PartName> parts);

  /// Starts to erase pages: calls that begin later do not find them. Errors: those of
  /// Store::submit.
  [[nodiscard]] Result<StoreTicket> start_erasing(std::span<const PageKey> pages);

 private:
  [[nodiscard]] Status write(const Manifest& manifest,
                             const std::shared_ptr<std::vector<PartBytes>>& parts);
  /// Whether the store has all parts. Errors: as ChunkRun::end.
  [[nodiscard]] Status check_parts(const Manifest& manifest);

  offload::StoreCalls calls_;
  BatchOptions writing_;
};

}  // namespace terrace::tiers
