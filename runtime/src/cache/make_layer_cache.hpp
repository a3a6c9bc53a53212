// The resident cache of a layer, of the kind that the options ask for.
#pragma once

#include <memory>

#include "cache_scratch.hpp"
#include "layer/layer.hpp"
#include "services/sequence_services.hpp"

namespace terrace {

/// Makes the kind that the options ask for. The layer must outlive it, and the scratch.
std::unique_ptr<LayerCache> make_layer_cache(const SequenceServices& services, Layer& layer,
                                             CacheScratch& scratch);

}  // namespace terrace
