#include "terrace/runtime/cache_options.hpp"

#include <algorithm>
#include <utility>

#include "terrace/core/bytes.hpp"

namespace terrace {

std::size_t cluster_slot_rows(const KvShape& shape, std::size_t block_tokens) noexcept {
  constexpr std::size_t about = 16;
  return std::min(divide_up(about, shape.kv_heads), block_tokens) * shape.kv_heads;
}

std::size_t cache_slots(const CacheOptions& options, const CacheSharing& sharing) noexcept {
  const std::size_t tokens =
      options.tokens != 0 ? options.tokens / sharing.sharers : 2 * sharing.selected_tokens;
  const std::size_t quota = options.sequence_tokens != 0 ? options.sequence_tokens : tokens;
  return std::min(tokens, quota) / sharing.slot_tokens;
}

Result<offload::ResidentCache> make_resident_cache(const CacheOptions& options, std::size_t slots,
                                                   std::size_t key_count) {
  TERRACE_ASSIGN(auto replacement,
                 policies::make_replacement_policy(options.policy, options.replacement));
  TERRACE_ASSIGN(auto admission,
                 policies::make_admission_policy(options.admission, options.refill));
  return offload::ResidentCache::create(slots, key_count, std::move(replacement),
                                        std::move(admission));
}

}  // namespace terrace
