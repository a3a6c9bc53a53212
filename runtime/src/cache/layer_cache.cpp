#include "layer_cache.hpp"

#include "block_cache.hpp"
#include "cluster_cache.hpp"
#include "sequence/layer.hpp"

namespace terrace {
namespace {

/// The cache of a policy that selects nothing: there is nothing to keep.
class NoCache final : public LayerCache {};

}  // namespace

std::unique_ptr<LayerCache> make_layer_cache(SequenceContext& context, Layer& layer,
                                             CacheScratch& scratch) {
  if (!context.selects()) return std::make_unique<NoCache>();
  if (context.options().cache.granularity == CacheGranularity::cluster) {
    return std::make_unique<ClusterCache>(context, layer, scratch);
  }
  return std::make_unique<BlockCache>(context, layer, scratch);
}

}  // namespace terrace
