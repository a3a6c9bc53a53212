#include "array.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "arguments.hpp"

namespace nb = nanobind;

namespace terrace::python {
namespace {

// The table of functions that __dlpack_c_exchange_api__ points to, in DLPack 1's layout.
struct ExchangeHeader {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  ExchangeHeader* older = nullptr;
};
struct ExchangeApi {
  ExchangeHeader header;
  void* make_tensor;
  void* give_tensor;
  void* take_tensor;
  int (*view)(void* object, nb::dlpack::dltensor* tensor);  ///< may be null; non-owning
  void* stream;
};

const ExchangeApi* find_api(PyTypeObject* type) noexcept {
  PyObject* const found =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  if (found == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const auto object = nb::steal(found);
  if (!PyCapsule_IsValid(found, "dlpack_exchange_api")) return nullptr;
  auto* header = static_cast<ExchangeHeader*>(PyCapsule_GetPointer(found, "dlpack_exchange_api"));
  while (header != nullptr && header->major != 1) header = header->older;
  const auto* const api = reinterpret_cast<const ExchangeApi*>(header);
  return api == nullptr || api->view == nullptr ? nullptr : api;
}

/// A type of arrays: how to get at their memory, and which arrays have a meaning that their memory
/// does not show.
struct ArrayType {
  PyTypeObject* type = nullptr;
  const ExchangeApi* api = nullptr;
  bool has_gradients = false;   ///< requires_grad: PyTorch
  bool has_lazy_signs = false;  ///< is_neg(): PyTorch
  bool has_masks = false;       ///< numpy.ma

  explicit ArrayType(PyTypeObject* of) noexcept : type(of), api(find_api(of)) {
    auto* const object = reinterpret_cast<PyObject*>(of);
    has_gradients = PyObject_HasAttrString(object, "requires_grad") != 0;
    has_lazy_signs = PyObject_HasAttrString(object, "is_neg") != 0;
    has_masks = PyObject_HasAttrString(object, "mask") != 0;
  }
  ArrayType() = default;
};

/// Remembers the types that were seen last: an engine passes the same types again and again. Types
/// are kept alive, so that no new type gets the address of an old one. Guarded by the GIL.
const ArrayType& type_of(PyTypeObject* type) noexcept {
  static std::array<ArrayType, 4> seen;
  static std::size_t next = 0;
  const auto* const known = std::find_if(seen.begin(), seen.end(),
                                         [type](const ArrayType& one) { return one.type == type; });
  if (known != seen.end()) return *known;
  ArrayType& place = seen.at(next);
  next = (next + 1) % seen.size();
  Py_XDECREF(reinterpret_cast<PyObject*>(place.type));
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  return place = ArrayType(type);
}

/// Whether an attribute, or the result of a method, is true. A failed look-up is not true.
bool is_true(PyObject* found) noexcept {
  const auto object = nb::steal(found);
  const int answer = found == nullptr ? 0 : PyObject_IsTrue(found);
  PyErr_Clear();
  return answer == 1;
}

/// Returns why an array's memory is not what the array means, or nothing.
std::string why_not_as_it_lies(nb::handle object, const ArrayType& type) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  static PyObject* const is_neg = PyUnicode_InternFromString("is_neg");
  if (type.has_gradients && is_true(PyObject_GetAttr(object.ptr(), requires_grad))) {
    return "requires gradients, which Terrace does not compute: give its detach()";
  }
  if (type.has_lazy_signs && is_true(PyObject_CallMethodNoArgs(object.ptr(), is_neg))) {
    return "has the sign of its numbers in a bit of its own (is_neg()): give its resolve_neg()";
  }
  if (type.has_masks) return "has a mask, which Terrace does not look at: give a plain array";
  return {};
}

/// Returns the first line of the error that Python has set, and clears it. Raises it where it is no
/// Exception, as a KeyboardInterrupt.
std::string take_error() {
  if (PyErr_Occurred() == nullptr) return "no reason was given";
  nb::python_error error;
  if (!error.matches(PyExc_Exception)) throw error;
  const nb::object text = nb::steal(PyObject_Str(error.value().ptr()));
  if (!text.is_valid()) clear_error({PyExc_Exception});
  const std::string read =
      text.is_valid() ? utf8_of(text).value_or("") : std::string("no reason was given");
  return read.substr(0, read.find('\n'));
}

/// Returns why a buffer has no numbers that can be read.
std::string why_no_numbers(const Py_buffer& buffer) {
  const std::string format = buffer.format == nullptr ? "B" : buffer.format;
  for (int i = 0; buffer.strides != nullptr && i < buffer.ndim; ++i) {
    if (buffer.itemsize > 0 && buffer.strides[i] % buffer.itemsize != 0) {
      return "has strides that are no multiples of its numbers: give a contiguous copy";
    }
  }
  return "has numbers of format '" + format +
         "': give f32, f16 or bf16, in the order of bytes of this machine";
}

std::string why_unreadable(nb::handle object) {
  Py_buffer buffer;
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_FULL_RO) == 0) {
      const std::string reason = why_no_numbers(buffer);
      PyBuffer_Release(&buffer);
      return reason;
    }
    return "cannot be read: " + take_error();
  }
  if (nb::hasattr(object, "__dlpack__")) {
    const nb::object capsule = nb::steal(PyObject_CallMethod(object.ptr(), "__dlpack__", nullptr));
    if (!capsule.is_valid()) return "cannot be read: " + take_error();
  }
  const std::string kind =
      object.is_none() ? "None"
                       : "of type " + nb::cast<std::string>(nb::str(nb::type_name(object.type())));
  return "is " + kind +
         ": give an array of NumPy, PyTorch or a library that speaks DLPack or the buffer protocol";
}

}  // namespace

std::size_t Array::numbers() const noexcept {
  std::size_t count = 1;
  for (std::size_t i = 0; i < dimensions; ++i) count *= static_cast<std::size_t>(shape[i]);
  return count;
}

std::string Array::take(const nb::dlpack::dltensor& tensor) {
  if (tensor.ndim < 0 || static_cast<std::size_t>(tensor.ndim) > dimensions_max) {
    return "has " + std::to_string(tensor.ndim) + " dimensions: give " +
           std::to_string(dimensions_max) + " at most";
  }
  data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  dtype = tensor.dtype;
  device = tensor.device.device_type;
  device_number = tensor.device.device_id;
  dimensions = static_cast<std::size_t>(tensor.ndim);
  std::int64_t packed = 1;
  for (std::size_t i = dimensions; i-- > 0;) {
    shape[i] = tensor.shape[i];
    strides[i] = tensor.strides == nullptr ? packed : tensor.strides[i];
    packed *= shape[i];
  }
  if (tensor.data == nullptr && numbers() > 0) return "has no memory: give one that has";
  return {};
}

template <typename Imported>
bool Array::import(nb::handle object, std::string& reason) {
  nb::detail::make_caster<Imported> caster;
  if (!caster.from_python(object, 0, nullptr)) return false;
  const Imported& array = caster.value;
  imported_ = nb::ndarray<nb::ro>(array);
  reason = take({const_cast<void*>(static_cast<const void*>(array.data())),
                 {array.device_type(), array.device_id()},
                 static_cast<std::int32_t>(array.ndim()),
                 array.dtype(),
                 const_cast<std::int64_t*>(array.shape_ptr()),
                 const_cast<std::int64_t*>(array.stride_ptr()),
                 0});
  return true;
}

std::string Array::read(nb::handle object, bool writable) {
  owner_ = nb::borrow(object);
  const ArrayType& type = type_of(Py_TYPE(object.ptr()));
  std::string reason = why_not_as_it_lies(object, type);
  if (!reason.empty()) return reason;
  if (type.api != nullptr) {
    nb::dlpack::dltensor tensor;
    if (type.api->view(object.ptr(), &tensor) == 0) return take(tensor);
    return "cannot be read: " + take_error();
  }
  const bool is_read = writable ? import <nb::ndarray<>>(object, reason)
                                : import <nb::ndarray<nb::ro>>(object, reason);
  if (is_read) return reason;
  if (writable && import <nb::ndarray<nb::ro>>(object, reason)) {
    return "may not be written: give an array that may";
  }
  return why_unreadable(object);
}

}  // namespace terrace::python
