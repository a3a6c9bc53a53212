#include "host_need.hpp"

#include <algorithm>

#include "cluster_cache_need.hpp"
#include "layer/index_memory.hpp"
#include "layer/selection_lists.hpp"
#include "memory/reserve_buffer.hpp"
#include "row_cache_need.hpp"
#include "rows/pointer_table.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

std::size_t HostNeed::rows() const noexcept {
  // The table of pages keeps one old table while it may be read. The host's copy of the device's
  // table keeps all old ones. Each old table has two thirds of the size of the next.
  const std::size_t tables = terms_.traits().keeps_everything ? 3 : 5;
  return blocks_.pages() * terms_.plan.block_bytes() +
         terms_.shape().layers * tables * PointerTable::bytes_for(blocks_.all());
}

std::size_t HostNeed::index() const noexcept {
  const std::size_t chunks = terms_.chunks();
  if (chunks == 0) return 0;
  const RuntimeOptions& options = terms_.options();
  const std::size_t layers = terms_.sparse_layers();
  const std::size_t copy = terms_.index_bytes(chunks);
  const std::size_t table = PointerTable::bytes_for(chunks);
  // Beside a refresh's there is the one that steps read.
  const std::size_t refreshed = options.refresh.tokens > 0 ? copy + table : 0;
  const std::size_t copies_of_device = options.index_residency == IndexResidency::host ? 2 : layers;
  std::size_t bytes = layers * (copy + 2 * table) + refreshed + 3 * copies_of_device * table;
  // An index that is trained anew amid a draft, or a later prompt, may have to come back.
  const std::size_t outgrown = std::min(terms_.asked.tokens, 2 * terms_.traits().training_tokens);
  if (outgrown > 0 && (terms_.asked.draft_tokens > 1 || terms_.asked.later_prompt_tokens > 0)) {
    const std::size_t replaced = divide_up(outgrown, terms_.layout().chunk_tokens);
    bytes += layers * (terms_.index_bytes(replaced) + PointerTable::bytes_for(replaced));
  }
  if (terms_.asked.later_prompt_tokens > 0) {
    // The index before a later prompt is kept, and the slab in which the prompt extends it copied.
    const std::size_t slab = std::min(chunks, IndexMemory::slab_chunks(terms_.layout()));
    bytes += layers * (slab * terms_.layout().chunk_bytes + table);
  }
  return bytes;
}

std::size_t HostNeed::selections() const noexcept {
  if (!terms_.may_select()) return 0;
  const std::size_t lists = terms_.shape().layers * terms_.single_tokens() *
                            selection_size(terms_.plan, terms_.list_rows()).bytes();
  if (terms_.traits().lists == ListScope::kv_head) return lists;
  // The list of positions whose marks are to be cleared.
  return lists + terms_.shape().kv_heads * with_room(terms_.asked.tokens) * sizeof(std::uint32_t);
}

std::size_t HostNeed::tables() const noexcept {
  return blocks_.tiled_layers() * with_room(blocks_.all()) * sizeof(std::byte*);
}

std::size_t HostNeed::retention() const noexcept {
  if (terms_.plan.retention == nullptr) return 0;
  const RetentionTraits& traits = terms_.plan.retention->traits();
  const KvShape& shape = terms_.shape();
  // Entries now, and those that take their place. Queries stay that tokens to be rejected displace.
  std::size_t bytes = 2 * terms_.entry_bytes() + weights();
  if (traits.scores == ScoredQueries::last) {
    bytes += terms_.sparse_layers() * 2 * traits.score_window * shape.query_heads * shape.head_dim *
             sizeof(float);
  }
  return bytes;
}

std::size_t HostNeed::weights() const noexcept {
  if (!terms_.wants_weights()) return 0;
  const std::size_t lists = terms_.plan.retention->traits().score_heads(terms_.shape());
  // Tokens of a later prompt have two places in turn.
  const std::size_t places =
      std::max<std::size_t>(terms_.single_tokens(), terms_.asked.later_prompt_tokens > 0 ? 2 : 1);
  return terms_.sparse_layers() * places * lists * terms_.weight_columns() * sizeof(float);
}

std::size_t HostNeed::cache() const noexcept {
  const std::size_t slots = blocks_.cache_slots();
  if (slots == 0) return 0;
  const std::size_t layers = terms_.sparse_layers();
  if (terms_.plan.caches(CacheGranularity::cluster)) {
    return layers * ClusterCacheNeed(terms_, slots).host();
  }
  if (terms_.plan.caches(CacheGranularity::row)) {
    return layers * RowCacheNeed(terms_, slots).host();
  }
  return 0;
}

std::size_t HostNeed::sample() const noexcept {
  if (terms_.options().mass_every == 0) return 0;
  return terms_.shape().group() * terms_.shape().head_dim * sizeof(float);
}

}  // namespace terrace
