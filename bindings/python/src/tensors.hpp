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

/// Reads the argument dtype. Errors: raises InvalidArgument unless it is f32, f16 or bf16.
[[nodiscard]] terrace_dtype read_dtype(GivenObject given);
[[nodiscard]] std::string name_of(terrace_dtype dtype);
[[nodiscard]] std::string name_of(nanobind::dlpack::dtype dtype);

/// Returns f32, f16 or bf16. Errors: raises InvalidArgument for another type.
[[nodiscard]] terrace_dtype dtype_of(const Named& named);

/// Reads an array, to write to it or not. Errors: raises InvalidArgument if it is not an array.
[[nodiscard]] Array read_input(std::string_view name, GivenArray given);
[[nodiscard]] Array read_output(std::string_view name, GivenArray given);

/// Raises InvalidArgument unless the array lies in the required memory: a device of CUDA, or the
/// host.
void check_place(const Named& named, bool on_cuda);

/// Raises InvalidArgument unless the array has this shape and type, lies in the required memory (a
/// device of CUDA, or the host), is aligned to its numbers, has no negative stride, and has a
/// packed last dimension.
void check_array(const Named& named, std::span<const std::size_t> shape,
                 nanobind::dlpack::dtype dtype, bool on_cuda);

/// The same, and without gaps between rows.
void check_packed(const Named& named, std::span<const std::size_t> shape,
                  nanobind::dlpack::dtype dtype, bool on_cuda);

/// Returns the stride from one token (dimension 0) or head (1) to the next, in numbers. A dimension
/// of size 1 has no meaningful stride, so `packed` is returned. Errors: raises InvalidArgument
/// where the `numbers` numbers of one reach into the next one's.
[[nodiscard]] std::size_t stride_of(const Named& named, std::size_t dimension, std::size_t numbers,
                                    std::size_t packed);

/// Raises InvalidArgument if an output overlaps the memory from an input's first to its last
/// number: ops refuse this, too, but their error names only the sequence. `output` and `input` are
/// checked arrays.
void check_apart(const Named& output, const Named& input);

}  // namespace terrace::python
