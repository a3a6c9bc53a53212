#include "terrace/runtime/cache_options.hpp"

#include <algorithm>
#include <utility>

#include "terrace/core/bytes.hpp"

namespace terrace {

std::string_view to_string(CacheGranularity granularity) noexcept {
  switch (granularity) {
    case CacheGranularity::cluster:
      return "cluster";
    case CacheGranularity::row:
      return "row";
    case CacheGranularity::block:
      break;
  }
  return "block";
}

std::optional<CacheGranularity> find_cache_granularity(std::string_view name) noexcept {
  for (const auto granularity :
       {CacheGranularity::block, CacheGranularity::cluster, CacheGranularity::row}) {
    if (to_string(granularity) == name) return granularity;
  }
  return std::nullopt;
}

CacheGranularity usual_granularity(std::string_view policy) noexcept {
  return policy == "lru" ? CacheGranularity::row : CacheGranularity::block;
}

Status check_cache(const CacheOptions& options) {
  const bool of_rows = options.granularity == CacheGranularity::row && !options.none();
  if (!of_rows || options.policy == "lru") return {};
  return fail(Errc::unsupported,
              "cache.policy {} cannot choose among rows, which the device replaces by itself; set "
              "cache.policy to lru, or cache.granularity to block",
              options.policy);
}

std::size_t cluster_slot_rows(const KvShape& shape, std::size_t block_tokens) noexcept {
  constexpr std::size_t about = 16;
  return std::min(divide_up(about, shape.kv_heads), block_tokens) * shape.kv_heads;
}

std::size_t cache_slot_tokens(CacheGranularity granularity, const KvShape& shape,
                              std::size_t block_tokens) noexcept {
  if (granularity != CacheGranularity::cluster) return block_tokens;
  return cluster_slot_rows(shape, block_tokens) / shape.kv_heads;
}

std::size_t cache_slots(const CacheOptions& options, const CacheSharing& sharing) noexcept {
  const std::size_t tokens =
      options.tokens != 0 ? options.tokens / sharing.sharers : 2 * sharing.selected_tokens;
  const std::size_t quota = options.sequence_tokens != 0 ? options.sequence_tokens : tokens;
  return std::min(tokens, quota) / sharing.slot_tokens;
}

std::optional<std::string> why_no_slot(const CacheOptions& options, const CacheSharing& sharing) {
  if (options.none() || cache_slots(options, sharing) != 0) return std::nullopt;
  const bool limited = cache_slots({.tokens = options.tokens}, sharing) != 0;
  // The size that is taken where none is given may be none: short sequences have little to keep.
  if (!limited && options.tokens == 0) return std::nullopt;
  return fmt::format(
      "cache.{} {} holds no {} of {} tokens: no cache; give at least {}",
      limited ? "sequence_tokens" : "tokens", limited ? options.sequence_tokens : options.tokens,
      options.granularity == CacheGranularity::cluster ? "slot of clusters" : "block",
      sharing.slot_tokens, limited ? sharing.slot_tokens : sharing.slot_tokens * sharing.sharers);
}

Result<policies::ResidentCache> make_resident_cache(const CacheOptions& options, std::size_t slots,
                                                    std::size_t key_count) {
  TERRACE_ASSIGN(auto replacement,
                 policies::make_replacement_policy(options.policy, options.replacement));
  TERRACE_ASSIGN(auto admission,
                 policies::make_admission_policy(options.admission, options.refill));
  return policies::ResidentCache::create(slots, key_count, std::move(replacement),
                                         std::move(admission));
}

}  // namespace terrace
