// Arrays of other libraries (NumPy, PyTorch, whatever speaks DLPack or the buffer protocol) as the
// C interface wants them: checked, and not copied.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "objects.hpp"

namespace terrace::python {

/// What an array says of itself.
struct ArrayTraits {
  std::string_view name;  ///< in messages
  nanobind::dlpack::dtype dtype;
  int device = 0;
  std::size_t dimensions = 0;
  const std::int64_t* shape = nullptr;
  const std::int64_t* strides = nullptr;  ///< numbers
};

[[nodiscard]] nanobind::dlpack::dtype dlpack_dtype(terrace_dtype dtype);

/// Returns f32, f16 or bf16. Errors: raises InvalidArgument for another type.
[[nodiscard]] terrace_dtype dtype_of(const ArrayTraits& array);

/// Raises InvalidArgument unless the array has this shape and type, lies where it has to (on a
/// device of CUDA, or in memory of the host), and its rows of the last dimension are packed.
void check_array(const ArrayTraits& array, std::span<const std::size_t> shape,
                 nanobind::dlpack::dtype dtype, bool on_cuda);

/// The same, and without gaps between rows.
void check_packed(const ArrayTraits& array, std::span<const std::size_t> shape,
                  nanobind::dlpack::dtype dtype, bool on_cuda);

/// Returns from one entry of a dimension to the next, in numbers; what that is where there is one
/// entry is of no meaning, so `packed` is returned. Errors: raises InvalidArgument where entries
/// lie backwards.
[[nodiscard]] std::size_t stride_of(const ArrayTraits& array, std::size_t dimension,
                                    std::size_t packed);

}  // namespace terrace::python
