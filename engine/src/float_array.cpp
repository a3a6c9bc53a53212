#include "terrace/engine/float_array.hpp"

#include <cstdlib>
#include <cstring>

#include "terrace/core/bytes.hpp"

namespace terrace::engine {

void FloatArray::Free::operator()(float* data) const noexcept { std::free(data); }

Result<FloatArray> FloatArray::create(std::size_t count) {
  TERRACE_ASSIGN(const std::size_t bytes, checked_multiply(count, sizeof(float)));
  if (bytes > SIZE_MAX - alignment) {
    return fail(Errc::out_of_memory, "an array of {} floats is beyond the address space", count);
  }
  const std::size_t padded_bytes = align_up(bytes == 0 ? 1 : bytes, alignment);
  FloatArray array;
  array.data_.reset(static_cast<float*>(std::aligned_alloc(alignment, padded_bytes)));
  if (!array.data_) {
    return fail(Errc::out_of_memory, "no memory for an array of {}", format_size(bytes));
  }
  std::memset(array.data_.get(), 0, padded_bytes);
  array.size_ = count;
  return array;
}

}  // namespace terrace::engine
