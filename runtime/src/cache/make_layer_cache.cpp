#include "make_layer_cache.hpp"

#include "block_cache.hpp"
#include "cluster_cache.hpp"
#include "row_cache.hpp"

namespace terrace {
namespace {

/// The cache of a policy that selects nothing: there is nothing to keep.
class NoCache final : public LayerCache {};

}  // namespace

std::unique_ptr<LayerCache> make_layer_cache(const SequenceServices& services, Layer& layer,
                                             CacheScratch& scratch) {
  if (!services.plan.selects()) return std::make_unique<NoCache>();
  switch (services.plan.options.cache.granularity) {
    case CacheGranularity::row:
      return std::make_unique<RowCache>(services, layer, scratch);
    case CacheGranularity::cluster:
      return std::make_unique<ClusterCache>(services, layer, scratch);
    case CacheGranularity::block:
      break;
  }
  return std::make_unique<BlockCache>(services, layer, scratch);
}

}  // namespace terrace
