#include "terrace/runtime/counters.hpp"

namespace terrace {

std::string_view to_string(WaitReason reason) noexcept {
  constexpr std::array<std::string_view, wait_reasons> names{
      "rows", "compute", "refill", "index", "upload", "copy", "rest", "retention"};
  return names[static_cast<std::size_t>(reason)];
}

}  // namespace terrace
