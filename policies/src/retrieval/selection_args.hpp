// From a policy's request to the arguments that all selecting ops share.
#pragma once

#include "terrace/core/retrieval.hpp"

namespace terrace::policies {

inline SelectCommon selection_of(const SelectRequest& request, const Selection& out,
                                 GroupReduction reduction = GroupReduction::sum_softmax) {
  return {.shape = request.shape,
          .query = request.query,
          .candidates = request.candidates,
          .count = request.count,
          .reduction = reduction,
          .ids = out.ids,
          .id_count = out.id_count,
          .id_stride = out.capacity,
          .scratch = request.scratch};
}

}  // namespace terrace::policies
