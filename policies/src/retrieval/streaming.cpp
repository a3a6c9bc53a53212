// StreamingLLM (Xiao et al., arXiv 2309.17453): sinks and the most recent tokens, nothing between.
// Positions stay the original ones: keys are rotated before they are stored.
#include "rows.hpp"
#include "without_index.hpp"

namespace terrace::policies {

MadeRetrievalPolicy make_streaming(const RetrievalOptions& /*options*/) {
  return std::make_unique<WithoutIndex>(RetrievalTraits{.name = "streaming", .selects = false});
}

}  // namespace terrace::policies
