#include "wrapping_policy.hpp"

#include <algorithm>

namespace terrace::policies {

std::size_t WrappingPolicy::build_parts(const BuildRequest& request) const noexcept {
  return base_->build_parts(request) % request.shape.kv_heads == 0 ? request.shape.kv_heads : 1;
}

Result<BuildReport> WrappingPolicy::build_part(const BuildRequest& request,
                                               std::size_t part) const {
  TERRACE_ASSIGN(const IndexLayout layout, base_->index_layout(request.shape));
  const std::size_t parts = build_parts(request);
  const std::size_t of_base = base_->build_parts(request) / parts;
  const std::size_t heads = request.shape.kv_heads / parts;
  BuildReport whole;
  for (std::size_t i = part * of_base; i < (part + 1) * of_base; ++i) {
    TERRACE_ASSIGN(const BuildReport report, base_->build_part(request, i));
    whole.iterations = std::max(whole.iterations, report.iterations);
  }
  for (std::size_t head = part * heads; head < (part + 1) * heads; ++head) {
    TERRACE_TRY(write_behind(layout, request, head));
  }
  return whole;
}

}  // namespace terrace::policies
