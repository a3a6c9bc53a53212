#include "prefix_library.hpp"

#include "terrace/tiers/chunk_chain.hpp"

namespace terrace {
namespace {

tiers::ModelSlice all_of(std::size_t count) noexcept { return {.whole = count, .count = count}; }

tiers::Namespace namespace_of(const RuntimeOptions& options) {
  const KvShape& shape = options.shape;
  return {.model_fingerprint = options.prefixes.model,
          .adapter = options.prefixes.adapter,
          .kv_dtype = shape.dtype,
          .layers = all_of(shape.layers),
          .kv_heads = all_of(shape.kv_heads),
          .head_dim = shape.head_dim,
          .rope = options.prefixes.rope,
          .block_tokens = options.block_tokens,
          .chunk_tokens = options.prefixes.chunk_tokens};
}

}  // namespace

PrefixLibrary::PrefixLibrary(const RuntimeOptions& options, std::string index_identity)
    : namespace_(namespace_of(options)),
      index_identity_(std::move(index_identity)),
      chunks_(options.below_host.store, options.deadline) {}

Result<std::unique_ptr<PrefixLibrary>> PrefixLibrary::open(const RuntimeOptions& options,
                                                           std::string index_identity) {
  std::unique_ptr<PrefixLibrary> library(new PrefixLibrary(options, std::move(index_identity)));
  TERRACE_TRY(library->namespace_.validate());
  return library;
}

Result<std::vector<tiers::ChunkKey>> PrefixLibrary::keys_of(const PrefixQuery& query) const {
  tiers::Namespace of_tenant = namespace_;
  of_tenant.salt = tiers::TenantSalt(query.salt);
  TERRACE_ASSIGN(const tiers::Digest root, of_tenant.digest());
  TERRACE_ASSIGN(tiers::ChunkChain chain,
                 tiers::ChunkChain::create({.root = root, .chunk_tokens = chunk_tokens()}));
  TERRACE_ASSIGN(const auto keys, chain.append(query.tokens));
  return std::vector(keys.begin(), keys.end());
}

}  // namespace terrace
