#include "prefix_library.hpp"

#include "terrace/tiers/chunk_chain.hpp"

namespace terrace {
namespace {

tiers::ModelSlice slice_of(const ModelShare& share, std::size_t count) noexcept {
  return {.whole = share.whole_for(count), .begin = share.first, .count = count};
}

tiers::Namespace namespace_of(const RuntimeOptions& options) {
  const KvShape& shape = options.shape;
  return {.model_fingerprint = options.prefixes.model,
          .adapter = options.prefixes.adapter,
          .kv_dtype = shape.dtype,
          .layers = slice_of(options.prefixes.layers, shape.layers),
          .kv_heads = slice_of(options.prefixes.kv_heads, shape.kv_heads),
          .head_dim = shape.head_dim,
          .rope = options.prefixes.rope,
          .block_tokens = options.block_tokens,
          .chunk_tokens = options.prefixes.chunk_tokens};
}

/// A query without hashes may say how large some would be.
tiers::CallerHashes kind_of(const PrefixHashes& hashes) noexcept {
  if (hashes.values.empty()) return {};
  return {.bytes = hashes.bytes, .tokens = hashes.tokens};
}

}  // namespace

PrefixLibrary::PrefixLibrary(const RuntimeOptions& options, std::string index_identity,
                             std::shared_ptr<tiers::ChunkKeeper> chunks)
    : namespace_(namespace_of(options)),
      index_identity_(std::move(index_identity)),
      chunks_(std::move(chunks)) {}

Result<std::unique_ptr<PrefixLibrary>> PrefixLibrary::open(
    const RuntimeOptions& options, std::string index_identity,
    std::shared_ptr<tiers::ChunkKeeper> chunks) {
  std::unique_ptr<PrefixLibrary> library(
      new PrefixLibrary(options, std::move(index_identity), std::move(chunks)));
  TERRACE_TRY(library->namespace_.validate());
  return library;
}

Status PrefixLibrary::check(const PrefixQuery& query) const {
  const PrefixHashes& hashes = query.hashes;
  if (hashes.values.empty()) return {};
  if (!query.tokens.empty()) {
    return fail(Errc::invalid_argument, "a prefix has tokens and hashes: give either");
  }
  if (hashes.bytes == 0 || hashes.values.size() % hashes.bytes != 0) {
    return fail(Errc::invalid_argument, "{} bytes of hashes of {} bytes each", hashes.values.size(),
                hashes.bytes);
  }
  return tiers::ChunkChain::create({.chunk_tokens = chunk_tokens(), .hashes = kind_of(hashes)})
      .map([](const tiers::ChunkChain& /*chain*/) {});
}

Result<PrefixNames> PrefixLibrary::names_of(const PrefixQuery& query) const {
  tiers::Namespace of_tenant = namespace_;
  of_tenant.salt = tiers::TenantSalt(query.salt);
  PrefixNames names;
  TERRACE_ASSIGN(names.root, of_tenant.digest());
  TERRACE_ASSIGN(names.tenant, chunks_->tenant_of(of_tenant.salt));
  TERRACE_ASSIGN(
      tiers::ChunkChain chain,
      tiers::ChunkChain::create(
          {.root = names.root, .chunk_tokens = chunk_tokens(), .hashes = kind_of(query.hashes)}));
  const PrefixHashes& hashes = query.hashes;
  TERRACE_ASSIGN(const auto keys, hashes.values.empty() ? chain.append(query.tokens)
                                                        : chain.append_hashes(hashes.values));
  names.chunks.assign(keys.begin(), keys.end());
  names.chunk_tokens = chunk_tokens();
  names.tokens = keys.size() * chunk_tokens();
  if (query.with_tail && names.tokens < query.length()) {
    TERRACE_ASSIGN(names.chunks.emplace_back(), chain.tail_key());
    names.tokens = query.length();
  }
  return names;
}

PrefixCounters PrefixLibrary::counters() const {
  using Outcome = tiers::LookUpOutcome;
  const tiers::ChunkCounters all = chunks_->counters();
  const tiers::LookUpCounters& ended = all.look_ups;
  return {.look_ups = ended.look_ups,
          .hits = ended[Outcome::hit_host] + ended[Outcome::hit_nvme] + ended[Outcome::hit_remote],
          .hits_remote = ended[Outcome::hit_remote],
          .partial = ended[Outcome::partial],
          .misses = {.never_stored = ended[Outcome::miss_never_stored],
                     .evicted = ended[Outcome::miss_evicted],
                     .corrupt = ended[Outcome::miss_corrupt],
                     .late = ended[Outcome::miss_late],
                     .other_namespace = ended[Outcome::miss_other_namespace],
                     .no_room = ended[Outcome::miss_no_room],
                     .slower = ended[Outcome::miss_slower]},
          .tokens_asked = all.tokens_asked,
          .tokens_found = all.tokens_found,
          .chunks_evicted = all.evicted,
          .bytes_resident = all.chunks.resident};
}

}  // namespace terrace
