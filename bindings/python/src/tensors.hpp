// Arrays are checked against what the C interface wants of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "objects.hpp"

namespace terrace::python {

/// An array by the name that messages give it.
struct Named {
  std::string_view name;
  const Array& array;
};

[[nodiscard]] nanobind::dlpack::dtype dlpack_dtype(terrace_dtype dtype);

/// Errors: raises InvalidArgument unless it is f32, f16 or bf16.
[[nodiscard]] terrace_dtype dtype_named(const std::string& name);
[[nodiscard]] std::string name_of(terrace_dtype dtype);

/// Returns f32, f16 or bf16. Errors: raises InvalidArgument for another type.
[[nodiscard]] terrace_dtype dtype_of(const Named& named);

/// Raises InvalidArgument unless the array has this shape and type, lies where it has to (on a
/// device of CUDA, or in memory of the host), and its rows of the last dimension are packed.
void check_array(const Named& named, std::span<const std::size_t> shape,
                 nanobind::dlpack::dtype dtype, bool on_cuda);

/// The same, and without gaps between rows.
void check_packed(const Named& named, std::span<const std::size_t> shape,
                  nanobind::dlpack::dtype dtype, bool on_cuda);

/// Returns from one entry of a dimension to the next, in numbers; what that is where there is one
/// entry is of no meaning, so `packed` is returned. Errors: raises InvalidArgument where entries
/// lie backwards.
[[nodiscard]] std::size_t stride_of(const Named& named, std::size_t dimension, std::size_t packed);

}  // namespace terrace::python
