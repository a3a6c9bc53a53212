#include "host_ops.hpp"

namespace terrace::offload {

const Ops& host_ops() noexcept {
  static constexpr Ops table{};
  return table;
}

}  // namespace terrace::offload
