// The keys of the chunks of a sequence, made as its tokens come.
//
//   TERRACE_ASSIGN(ChunkChain chain, ChunkChain::create({.root = root, .chunk_tokens = 256}));
//   TERRACE_ASSIGN(const auto full, chain.append(tokens));    // keys of the chunks that are new
//
// Each key is made of the link of the chunk before and of the chunk's own tokens:
//
//   link = SHA-256(fields: "terrace chunk 1", kind, unit bytes, unit tokens, link before, units)
//   key  = the first 128 bits of the link
//
// The link before the first is the digest of the namespace. A field is its length, as 8 bytes, and
// its bytes; numbers are little-endian, those that are fields have 8 bytes. The kind is "tokens"
// (units are token ids of 4 bytes, of one token each) or "hashes" (units are the caller's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/ids.hpp"
#include "terrace/core/result.hpp"
#include "terrace/tiers/chunk_key.hpp"
#include "terrace/tiers/digest.hpp"

namespace terrace::tiers {

/// Hashes that a caller brings in place of tokens, as engines have them of their own blocks. They
/// have to stand for everything that the caller's tokens depend on: images, for example.
struct CallerHashes {
  std::size_t bytes = 0;   ///< of one hash; 0 = the chain is over token ids
  std::size_t tokens = 0;  ///< that one hash stands for; a divisor of chunk_tokens
};

struct ChunkChainOptions {
  Digest root = {};  ///< Namespace::digest
  std::size_t chunk_tokens = 0;
  CallerHashes hashes = {};
};

/// Keeps what it was given, 4 bytes a token or what the hashes take, to be cut at any position.
///
/// Threads  one at a time
class ChunkChain {
 public:
  static constexpr std::size_t chunk_tokens_max = std::size_t{1} << 20;
  static constexpr std::size_t hash_bytes_max = 64;

  /// Errors   invalid_argument: chunks of no tokens or of more than chunk_tokens_max, hashes above
  ///          hash_bytes_max, or hashes that do not divide a chunk
  [[nodiscard]] static Result<ChunkChain> create(const ChunkChainOptions& options);

  /// Appends token ids. Returns the keys of the chunks that are full now and were not before; they
  /// are valid until the chain changes.
  ///
  /// Errors   invalid_argument: the chain is over hashes; out_of_memory: the hash could not be
  ///          computed. The chain is as it was then
  [[nodiscard]] Result<std::span<const ChunkKey>> append(std::span<const TokenId> tokens);

  /// Appends hashes, one after the other without gaps.
  ///
  /// Errors   as append(); invalid_argument: the chain is over tokens, or the bytes are no whole
  ///          hashes
  [[nodiscard]] Result<std::span<const ChunkKey>> append_hashes(std::span<const std::byte> hashes);

  /// Returns the keys of all full chunks, from the front.
  [[nodiscard]] std::span<const ChunkKey> keys() const noexcept { return keys_; }

  /// Returns the key of a last chunk that has only the tokens behind the full ones. The next token
  /// gives it another key.
  ///
  /// Errors   invalid_argument: there are none; out_of_memory: the hash could not be computed
  [[nodiscard]] Result<ChunkKey> tail_key() const;

  /// Returns how many tokens there are, those of the last chunk that is not full included.
  [[nodiscard]] std::size_t tokens() const noexcept;

  /// Cuts the chain to its first `tokens` tokens. Chunks that are full no longer lose their keys.
  ///
  /// Errors   invalid_argument: there are fewer tokens, or a hash would be cut
  [[nodiscard]] Status truncate(std::size_t tokens);

  /// Returns a chain that begins with the first `tokens` tokens of this one.
  ///
  /// Errors   as truncate()
  /// Cost     copies what the chain keeps of these tokens; hashes nothing
  [[nodiscard]] Result<ChunkChain> fork(std::size_t tokens) const;

 private:
  explicit ChunkChain(const ChunkChainOptions& options);

  [[nodiscard]] std::size_t chunk_bytes() const noexcept;
  [[nodiscard]] Status check_cut(std::size_t tokens) const;
  [[nodiscard]] Result<std::span<const ChunkKey>> extend(std::span<const std::byte> units);
  [[nodiscard]] Result<Digest> link_after(const Digest& link,
                                          std::span<const std::byte> units) const;
  void keep_first(std::size_t chunks, std::size_t bytes);

  ChunkChainOptions options_;
  std::size_t unit_bytes_ = 0;
  std::size_t unit_tokens_ = 0;
  std::vector<std::byte> units_;
  std::vector<Digest> links_;  ///< of full chunks
  std::vector<ChunkKey> keys_;
};

}  // namespace terrace::tiers
