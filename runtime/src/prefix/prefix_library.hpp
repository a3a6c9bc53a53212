// The prefixes of a runtime: how their chunks are named, and who keeps them.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "terrace/runtime/options.hpp"
#include "terrace/runtime/prefix.hpp"
#include "terrace/tiers/chunk_keeper.hpp"
#include "terrace/tiers/namespace.hpp"

namespace terrace {

/// The names of a prefix.
struct PrefixNames {
  tiers::Digest root = {};  ///< of the namespace
  tiers::TenantId tenant = {};
  std::vector<tiers::ChunkKey> chunks;  ///< keys of the whole chunks, and of the tail
  std::size_t chunk_tokens = 0;
  std::size_t tokens = 0;  ///< of all chunks

  /// Returns the tokens of a chunk.
  [[nodiscard]] TokenRange tokens_of(std::size_t chunk) const noexcept {
    return {chunk * chunk_tokens, std::min((chunk + 1) * chunk_tokens, tokens)};
  }
  /// Leaves out chunks behind the first `count`.
  void keep_first(std::size_t count) {
    chunks.resize(count);
    tokens = std::min(tokens, count * chunk_tokens);
  }

  /// Asks for some of its chunks, or for what is kept beside them.
  [[nodiscard]] tiers::FindRequest request(std::span<const tiers::ChunkKey> keys,
                                           TimePoint now) const noexcept {
    return {.root = root, .tenant = tenant, .keys = keys, .now = now};
  }
};

/// Threads  safe from any thread
class PrefixLibrary {
 public:
  /// `index_identity`: of what indexes depend on beside rows.
  /// Errors: invalid_argument: settings that make no namespace.
  static Result<std::unique_ptr<PrefixLibrary>> open(const RuntimeOptions& options,
                                                     std::string index_identity,
                                                     std::shared_ptr<tiers::ChunkKeeper> chunks);

  /// Errors: invalid_argument: tokens and hashes, or hashes that do not fit chunks.
  [[nodiscard]] Status check(const PrefixQuery& query) const;
  /// Returns the names of a query's tokens. Errors: those of tiers::ChunkChain.
  [[nodiscard]] Result<PrefixNames> names_of(const PrefixQuery& query) const;

  /// Returns the key of the indexes of the prefix that ends with a chunk.
  [[nodiscard]] Result<tiers::ChunkKey> index_key(const tiers::ChunkKey& last) const {
    return tiers::key_after(last, index_identity_);
  }

  /// Names a layer's rows in a chunk.
  [[nodiscard]] static tiers::PartName rows_of(std::size_t layer) noexcept {
    return {.kind = tiers::PartKind::rows, .layer = static_cast<std::uint32_t>(layer)};
  }

  /// Returns how look-ups ended: in all runtimes of the process that share the store; with a
  /// daemon, in this one.
  [[nodiscard]] PrefixCounters counters() const;

  [[nodiscard]] tiers::ChunkKeeper& chunks() noexcept { return *chunks_; }
  [[nodiscard]] std::size_t chunk_tokens() const noexcept { return namespace_.chunk_tokens; }

 private:
  PrefixLibrary(const RuntimeOptions& options, std::string index_identity,
                std::shared_ptr<tiers::ChunkKeeper> chunks);

  tiers::Namespace namespace_;
  std::string index_identity_;
  std::shared_ptr<tiers::ChunkKeeper> chunks_;
};

}  // namespace terrace
