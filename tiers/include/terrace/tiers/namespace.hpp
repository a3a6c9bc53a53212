// A namespace: everything beside the tokens that makes two KV caches interchangeable.
//
//   const Namespace of_model{.model_fingerprint = weights, .layers = {.whole = 32, .count = 32},
//   ...}; TERRACE_ASSIGN(const Digest root, of_model.digest());    // the first link of its chains
//
// Chunks of two namespaces have different keys, so that rows of other weights, of another adapter,
// of another slice of the heads or of another tenant are never found.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "terrace/core/dtype.hpp"
#include "terrace/core/result.hpp"
#include "terrace/tiers/digest.hpp"

namespace terrace::tiers {

/// A secret that keeps the chunks of a tenant apart. Nothing formats or prints it, and no message
/// has it. Keys depend on it, so a reader of keys can try salts that are easy to guess: a salt of
/// 16 random bytes or more is out of reach.
class TenantSalt {
 public:
  TenantSalt() = default;
  explicit TenantSalt(std::string bytes) : bytes_(std::move(bytes)) {}

  [[nodiscard]] bool is_empty() const noexcept { return bytes_.empty(); }
  /// Returns the secret itself, for hashing and for nothing else.
  [[nodiscard]] const std::string& secret() const noexcept { return bytes_; }

  bool operator==(const TenantSalt&) const = default;

 private:
  std::string bytes_;
};

/// Returns the SHA-256 of a salt, by which a tenant is told from others. A salt that is easy to
/// guess can be found by it. Errors: out_of_memory: the hash could not be computed.
[[nodiscard]] Result<Digest> digest_of(const TenantSalt& salt);

/// The layers or KV heads that a cache has, of those of the whole model.
struct ModelSlice {
  std::uint64_t whole = 0;  ///< of the model
  std::uint64_t begin = 0;
  std::uint64_t count = 0;

  bool operator==(const ModelSlice&) const = default;
};

struct Namespace {
  std::string model_fingerprint = {};  ///< a digest of the weights; the name of a folder is none
  std::string adapter = {};            ///< a digest of the adapter's weights; empty = no adapter
  Dtype kv_dtype = Dtype::f16;
  ModelSlice layers = {};
  ModelSlice kv_heads = {};
  std::uint64_t head_dim = 0;
  std::string rope = {};             ///< all parameters of RoPE, in the words of the engine
  std::uint64_t layout_version = 1;  ///< of rows and of the parts of a chunk
  std::uint64_t block_tokens = 0;
  std::uint64_t chunk_tokens = 0;  ///< a multiple of block_tokens
  TenantSalt salt = {};

  /// Errors   invalid_argument: no fingerprint, a size of zero, a slice that is empty or reaches
  ///          beyond the model, or chunks that are no multiple of blocks
  [[nodiscard]] Status validate() const;

  /// Returns the SHA-256 of all fields, each with its length before it, so that two namespaces
  /// which differ in any field have different digests.
  ///
  /// Errors   those of validate(); out_of_memory: the hash could not be computed
  [[nodiscard]] Result<Digest> digest() const;

  /// Returns one line for people, with each field but the salt.
  [[nodiscard]] std::string describe() const;

  bool operator==(const Namespace&) const = default;
};

}  // namespace terrace::tiers
