#include "tensors.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace nb = nanobind;

namespace terrace::python {
namespace {

std::string text_of(std::span<const std::size_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::string shape_text(const Named& named) {
  const std::vector<std::size_t> shape(
      named.array.shape.begin(),
      named.array.shape.begin() + static_cast<std::ptrdiff_t>(named.array.dimensions));
  return text_of(shape);
}

bool is_on_cuda(int device) {
  return device == nb::device::cuda::value || device == nb::device::cuda_managed::value;
}

[[noreturn]] void refuse(const Named& named, const std::string& why) {
  raise_invalid(std::string(named.name) + ' ' + why);
}

void check_order(const Named& named) {
  for (std::size_t i = 0; i < named.array.dimensions; ++i) {
    if (named.array.shape[i] > 1 && named.array.strides[i] < 0) {
      refuse(named, "lies backwards in memory: give a contiguous copy");
    }
  }
}

void check_address(const Named& named) {
  const std::size_t size = named.array.dtype.bits / 8;
  if (reinterpret_cast<std::uintptr_t>(named.array.data) % size == 0) return;
  refuse(named, "begins amid a number of " + std::to_string(size) +
                    " bytes in memory: give a copy, which is aligned");
}

/// The memory of an array's numbers: from the first byte to the end of the last. Strides are not
/// negative.
struct Memory {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

Memory memory_of(const Array& array) {
  const auto begin = reinterpret_cast<std::uintptr_t>(array.data);
  if (array.numbers() == 0) return {begin, begin};
  std::size_t last = 0;
  for (std::size_t i = 0; i < array.dimensions; ++i) {
    last += static_cast<std::size_t>((array.shape[i] - 1) * array.strides[i]);
  }
  return {begin, begin + (last + 1) * (array.dtype.bits / 8)};
}

Array read_array(std::string_view name, GivenArray given, bool writable) {
  Array array;
  const std::string reason = array.read(given.object, writable);
  if (!reason.empty()) raise_invalid(std::string(name) + ' ' + reason);
  return array;
}

}  // namespace

Array read_input(std::string_view name, GivenArray given) { return read_array(name, given, false); }

Array read_output(std::string_view name, GivenArray given) { return read_array(name, given, true); }

nb::dlpack::dtype dlpack_dtype(terrace_dtype dtype) {
  switch (dtype) {
    case TERRACE_DTYPE_F32:
      return nb::dtype<float>();
    case TERRACE_DTYPE_F16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case TERRACE_DTYPE_BF16:
      break;
  }
  return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
}

std::string name_of(terrace_dtype dtype) {
  static constexpr std::array names{"f32", "f16", "bf16"};
  return names.at(static_cast<std::size_t>(dtype));
}

std::string name_of(nb::dlpack::dtype dtype) {
  const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
  const std::string bits = std::to_string(dtype.bits);
  switch (code) {
    case nb::dlpack::dtype_code::Float:
      return "f" + bits;
    case nb::dlpack::dtype_code::Bfloat:
      return "bf" + bits;
    case nb::dlpack::dtype_code::Int:
      return "i" + bits;
    case nb::dlpack::dtype_code::UInt:
      return "u" + bits;
    case nb::dlpack::dtype_code::Complex:
      return "complex" + bits;
    case nb::dlpack::dtype_code::Bool:
      return "bool";
    default:
      return "another type";
  }
}

void check_place(const Named& named, bool on_cuda) {
  const bool both = named.array.device == nb::device::cuda_managed::value;
  const bool known = is_on_cuda(named.array.device) ||
                     named.array.device == nb::device::cpu::value ||
                     named.array.device == nb::device::cuda_host::value;
  if (!known)
    refuse(named,
           "lies on a device that Terrace does not know: give memory of the host or of CUDA");
  if (on_cuda && is_on_cuda(named.array.device) && !both && named.array.device_number != 0) {
    refuse(named, "lies on device " + std::to_string(named.array.device_number) +
                      " of CUDA, but Terrace works on device 0: move it there");
  }
  if (both || is_on_cuda(named.array.device) == on_cuda) return;
  refuse(named, on_cuda
                    ? "lies in memory of the host, but the backend is cuda: move it there"
                    : "lies on a device of CUDA, but memory of the host is wanted: move it there");
}

terrace_dtype read_dtype(GivenObject given) {
  for (const terrace_dtype dtype : {TERRACE_DTYPE_F32, TERRACE_DTYPE_F16, TERRACE_DTYPE_BF16}) {
    if (nb::isinstance<nb::str>(given.object) && utf8_of(given.object) == name_of(dtype)) {
      return dtype;
    }
  }
  refuse_object("dtype", given.object, "'f32', 'f16' or 'bf16'");
}

terrace_dtype dtype_of(const Named& named) {
  for (const terrace_dtype dtype : {TERRACE_DTYPE_F32, TERRACE_DTYPE_F16, TERRACE_DTYPE_BF16}) {
    if (named.array.dtype == dlpack_dtype(dtype)) return dtype;
  }
  refuse(named, "is of " + name_of(named.array.dtype) + ": give f32, f16 or bf16");
}

void check_array(const Named& named, std::span<const std::size_t> shape, nb::dlpack::dtype dtype,
                 bool on_cuda) {
  bool fits = named.array.dimensions == shape.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i) {
    fits = named.array.shape[i] == static_cast<std::int64_t>(shape[i]);
  }
  if (!fits) refuse(named, "has shape " + shape_text(named) + ": give " + text_of(shape));
  if (named.array.dtype != dtype) {
    refuse(named, "is of " + name_of(named.array.dtype) + ": give " + name_of(dtype));
  }
  check_place(named, on_cuda);
  check_address(named);
  check_order(named);
  const std::size_t last = shape.size() - 1;
  if (shape[last] > 1 && named.array.strides[last] != 1) {
    refuse(named, "has gaps in its last dimension: give a contiguous copy");
  }
}

void check_packed(const Named& named, std::span<const std::size_t> shape, nb::dlpack::dtype dtype,
                  bool on_cuda) {
  check_array(named, shape, dtype, on_cuda);
  std::int64_t packed = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] > 1 && named.array.strides[i] != packed) {
      refuse(named, "has gaps between rows: give a contiguous copy");
    }
    packed *= static_cast<std::int64_t>(shape[i]);
  }
}

std::size_t stride_of(const Named& named, std::size_t dimension, std::size_t numbers,
                      std::size_t packed) {
  if (named.array.shape[dimension] <= 1) return packed;
  const auto stride = static_cast<std::size_t>(named.array.strides[dimension]);
  if (stride >= numbers) return stride;
  refuse(named, std::string("has ") + (dimension == 0 ? "tokens" : "heads") +
                    " that share memory, with " + std::to_string(stride) +
                    " numbers from one to the next: give a contiguous copy");
}

void check_apart(const Named& output, const Named& input) {
  const Memory own = memory_of(output.array);
  const Memory other = memory_of(input.array);
  if (own.end <= other.begin || other.end <= own.begin) return;
  refuse(output, "lies within the memory of " + std::string(input.name) +
                     ", from its first number to its last: give memory of its own");
}

}  // namespace terrace::python
