#include "make_layer_cache.hpp"

#include "block_cache.hpp"
#include "cluster_cache.hpp"

namespace terrace {
namespace {

/// The cache of a policy that selects nothing: there is nothing to keep.
class NoCache final : public LayerCache {};

}  // namespace

std::unique_ptr<LayerCache> make_layer_cache(const SequenceServices& services, Layer& layer,
                                             CacheScratch& scratch) {
  if (!services.plan.selects()) return std::make_unique<NoCache>();
  if (services.plan.options.cache.granularity == CacheGranularity::cluster) {
    return std::make_unique<ClusterCache>(services, layer, scratch);
  }
  return std::make_unique<BlockCache>(services, layer, scratch);
}

}  // namespace terrace
