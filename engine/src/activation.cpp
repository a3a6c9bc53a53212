#include "terrace/engine/activation.hpp"

#include <algorithm>

#include "terrace/core/bytes.hpp"

namespace terrace::engine {

Result<Activation> Activation::create(Backend& backend, std::size_t floats) {
  Activation array;
  if (backend.capabilities().host_reads_device) {
    TERRACE_ASSIGN(array.plain_, FloatArray::create(floats));
    array.data_ = array.plain_.data();
  } else {
    TERRACE_ASSIGN(const std::size_t bytes, checked_multiply(floats, sizeof(float)));
    TERRACE_ASSIGN(array.shared_, backend.allocate({.bytes = bytes,
                                                    .alignment = FloatArray::alignment,
                                                    .tier = Tier::host,
                                                    .purpose = Purpose::activation}));
    array.data_ = array.shared_.as<float>();
    std::fill_n(array.data_, floats, 0.0F);
  }
  array.size_ = floats;
  return array;
}

}  // namespace terrace::engine
