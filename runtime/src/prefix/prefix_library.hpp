// The prefixes of a runtime: how their chunks are named, and where they are kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "terrace/runtime/options.hpp"
#include "terrace/tiers/chunk_store.hpp"
#include "terrace/tiers/namespace.hpp"

namespace terrace {

/// Threads  safe from any thread
class PrefixLibrary {
 public:
  /// `index_identity`: of what indexes depend on beside rows.
  /// Errors: invalid_argument: settings that make no namespace.
  static Result<std::unique_ptr<PrefixLibrary>> open(const RuntimeOptions& options,
                                                     std::string index_identity);

  /// Returns the keys of the whole chunks of a query's tokens.
  /// Errors: those of tiers::ChunkChain.
  [[nodiscard]] Result<std::vector<tiers::ChunkKey>> keys_of(const PrefixQuery& query) const;

  /// Returns the key of the indexes of the prefix that ends with a chunk.
  [[nodiscard]] Result<tiers::ChunkKey> index_key(const tiers::ChunkKey& last) const {
    return tiers::key_after(last, index_identity_);
  }

  /// Names a layer's rows in a chunk.
  [[nodiscard]] static tiers::PartName rows_of(std::size_t layer) noexcept {
    return {.kind = tiers::PartKind::rows, .layer = static_cast<std::uint32_t>(layer)};
  }

  [[nodiscard]] tiers::ChunkStore& chunks() noexcept { return chunks_; }
  [[nodiscard]] std::size_t chunk_tokens() const noexcept { return namespace_.chunk_tokens; }

 private:
  PrefixLibrary(const RuntimeOptions& options, std::string index_identity);

  tiers::Namespace namespace_;
  std::string index_identity_;
  tiers::ChunkStore chunks_;
};

}  // namespace terrace
