// Chunks in a store: written part by part with the manifest last, so that a chunk whose manifest is
// there is whole; found only while all of its parts are there.
//
//   ChunkStore chunks(store, deadline);
//   TERRACE_TRY(chunks.publish(key, 256, std::move(parts)));
//   TERRACE_ASSIGN(const std::vector<Manifest> run, chunks.find_run(keys));
//   TERRACE_ASSIGN(const auto bytes, chunks.read(run[0], run[0].parts()[0]));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

/// Threads  safe from any thread
class ChunkStore {
 public:
  /// Each call waits for the store until the deadline.
  ChunkStore(std::shared_ptr<Store> store, Duration deadline) noexcept
      : calls_(std::move(store), deadline) {}

  /// Writes a chunk. It is found whole, or not at all.
  ///
  /// Errors   invalid_argument: those of Manifest::create; those of the store: out_of_memory where
  ///          it is full. Parts that were written are erased then
  [[nodiscard]] Status publish(const ChunkKey& chunk, std::uint32_t tokens,
                               std::vector<PartBytes> parts);

  /// Returns the manifests of the longest run of chunks, from the front, that are whole. A chunk
  /// whose manifest or parts are damaged or gone ends the run, and is erased: the next call does
  /// not try it again.
  ///
  /// Errors   not_ready past the deadline
  [[nodiscard]] Result<std::vector<Manifest>> find_run(std::span<const ChunkKey> chunks);

  /// Returns which of the chunks have a manifest. Errors: not_ready past the deadline.
  [[nodiscard]] Result<std::vector<bool>> has(std::span<const ChunkKey> chunks);

  /// Returns the bytes of a part, as they were published.
  ///
  /// Errors   corrupt: other bytes; those of the store
  [[nodiscard]] Result<std::vector<std::byte>> read(const Manifest& manifest, const Part& part);

  /// Errors   those of the store; some parts may be left then, and the manifest is not
  [[nodiscard]] Status erase(const Manifest& manifest);

 private:
  /// Whether the store has all parts.
  [[nodiscard]] Result<bool> has_parts(const Manifest& manifest);

  offload::StoreCalls calls_;
};

}  // namespace terrace::tiers
